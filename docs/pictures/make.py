"""Draw the pictures of the docs: figures of a small sweep, and the report of the PACS study in headless Chromium.

    make pictures                     # trains 24 runs on `digits` first (20 minutes on two cores), then draws
    make pictures SWEEP=folder        # draws those of a finished sweep of erm, fgmix_a and fgmix with snapshots
    python docs/pictures/make.py      # only what needs no weights: figures of records, and the report

Rerun it after a change of the report or of a figure, and look at every picture.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).resolve().parent
FGMIX = str(Path(sys.executable).with_name("fgmix"))
PLAN = ("--datasets", "digits", "--algorithms", "erm,fgmix_a,fgmix", "--trials", "2", "--hparams", "1")
OPTIONS = ("--steps", "200", "--eval-every", "20", "--keep", "all", "--snapshots", "10")
ROOT = HERE.parent.parent
RECORDS = "docs/records/pacs.records.xz"  # relative to the root: the report prints it
FEATURES = "docs/records/pacs-features.records.xz"
TITLE = "FGMix on PACS: 11 arms, 3 trials"
WIDTH = 2000  # pixels of a figure, at most: twice what a page shows
SCALE = 2  # pixels of a picture for one of the screen
FROM_RECORDS = {  # figures that need no weights
    "domains": [RECORDS, "--kind", "domains"],
    "line": [FEATURES, "--kind", "line"],
    "sensitivity": ["--published"],
}
# Width, height and colour scheme (0 is dark) of pictures of the report
SCREENS = {
    "report": (1280, 1000, 1),
    "report-dark": (1280, 1000, 0),
    "report-phone": (390, 844, 1),
}


def main(sweep: Path | None) -> None:
    """Train what is missing, draw the figures, photograph the report."""
    if sweep:
        if not (sweep / "sweeps").is_dir():
            fgmix("sweep", *PLAN, *OPTIONS, "--out", str(sweep))
        draw_figures(first_trial(sweep), sweep)
    with tempfile.TemporaryDirectory() as place:
        for name, words in FROM_RECORDS.items():
            written = fgmix("plot", "results", *words, "--out", place).splitlines()
            shrink(Path(written[0]), HERE / f"{name}.png")
        report = Path(place, "report.html")
        fgmix("report", RECORDS, "--format", "html", "--title", TITLE, "--out", str(report))
        photograph(report)


def fgmix(*words: str) -> str:
    """What a command of fgmix prints."""
    print("fgmix", *words)
    return subprocess.run([FGMIX, *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def first_trial(sweep: Path) -> dict[tuple[str, str], str]:
    """Folders of the runs of trial 0, by algorithm and test domain."""
    found = {}
    for file in sorted(sweep.glob("*/spec.json")):
        spec = json.loads(file.read_text())["spec"]
        if spec["trial_seed"] == 0:
            found[spec["algorithm"], spec["test_domains"][0]] = str(file.parent)
    return found


def draw_figures(runs: dict[tuple[str, str], str], sweep: Path) -> None:
    """Every figure, and a small copy of each in this folder."""
    domains = sorted({domain for _, domain in runs})
    every = [runs[algorithm, domain] for domain in domains for algorithm in ("erm", "fgmix_a", "fgmix")]
    two = [runs[algorithm, domain] for domain in domains[-2:] for algorithm in ("erm", "fgmix")]
    fgmix_runs = [runs["fgmix", domain] for domain in domains[-2:]]
    commands = {
        "weights": ["weights"],
        "tsne": ["tsne", *fgmix_runs, "--samples", "60", "--mixed", "150"],
        "flatness": ["flatness", *every, "--directions", "20", "--samples", "100"],
        "flatness-network": ["flatness", *every[-3:], "--scope", "network", "--directions", "10", "--samples", "20"],
        "surface": ["surface", *two, "--resolution", "13", "--samples", "60"],
        "scores": ["scores", fgmix_runs[-1]],
        "shift": ["tsne", "--shift", fgmix_runs[-1], "--permutations", "50", "--samples", "60"],
        "cd": ["cd", str(sweep)],
    }
    for name, words in commands.items():
        written = fgmix("plot", *words, "--out", str(sweep / "figures")).splitlines()
        shrink(Path(written[0]), HERE / f"{name}.png")


def photograph(report: Path) -> None:
    """The first screen of a report at several widths, in the light and in the dark."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        print("No Chromium here: the pictures of the report stay as they are.")
        return
    for name, (width, height, scheme) in SCREENS.items():
        with tempfile.TemporaryDirectory() as place:
            picture = Path(place, "screen.png")
            # A narrower window than 500 pixels is not made: a frame of the width wanted is photographed in a wider one.
            frame = Path(place, "frame.html")
            size = f'width="{width}" height="{height}" style="border: 0; position: absolute; left: 0; top: 0"'
            frame.write_text(
                f'<meta name="color-scheme" content="light dark"><iframe {size} src="{report.as_uri()}"></iframe>'
            )
            flags = (
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--allow-file-access-from-files",
            )
            window = (f"--window-size={max(width, 500)},{height}", f"--blink-settings=preferredColorScheme={scheme}")
            window = (*window, f"--force-device-scale-factor={SCALE}")
            shot = ("--virtual-time-budget=5000", f"--screenshot={picture}", frame.as_uri())
            subprocess.run([chromium, *flags, *window, *shot], check=True, stderr=subprocess.DEVNULL)
            with Image.open(picture) as image:
                image.crop((0, 0, SCALE * width, SCALE * height)).save(picture)
            shrink(picture, HERE / f"{name}.png", SCALE * width)


def shrink(picture: Path, to: Path, width: int = WIDTH) -> None:
    """A copy of a picture that is small enough for the docs."""
    with Image.open(picture) as image:
        small = image.convert("RGB")
        small.thumbnail((width, 3 * width), Image.Resampling.LANCZOS)
        small.save(to, optimize=True)
    print(f"{to} ({to.stat().st_size // 1000} kB)")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None)
