"""Draw the pictures of the docs: figures of a small sweep, and the report of a study in headless Chromium.

    make pictures                     # trains 12 runs on `digits` first (4 CPU-minutes in all), then draws
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
from typing import Any

import diagrams
import numpy as np
import readme
from PIL import Image

from fgmix import read_runs
from fgmix.figures.description import Axis, Band, Chart, Line, Mark, Panel, Words, connect_points
from fgmix.figures.draw import draw, save_figure
from fgmix.results.intervals import MeanDifference

HERE = Path(__file__).resolve().parent
FGMIX = str(Path(sys.executable).with_name("fgmix"))
PLAN = ("--datasets", "digits", "--algorithms", "erm,fgmix_a,fgmix", "--trials", "1", "--hparams", "1")
OPTIONS = ("--steps", "200", "--eval-every", "20", "--keep", "all", "--snapshots", "10")
ROOT = HERE.parent.parent
RECORDS = "docs/records/pacs.records.xz"  # relative to the root: the report prints it
TYPEFACES = "docs/records/typefaces.records.xz"
PACS224 = "docs/records/pacs224.records.xz"
FEATURES = "docs/records/pacs-features.records.xz"
TITLE = "47 methods on frozen features of PACS, 20 trials"
WIDTH = 2200  # pixels of a figure, at most: about twice what a page shows
SCALE = 2  # pixels of a picture for one of the screen
ANGLES = "docs/records/rotated-digits.records.xz"
SAVED = "docs/records/pacs-figures"
FROM_RECORDS = {  # figures that need no weights: words after `fgmix plot`
    "domains": ["results", RECORDS, "--kind", "domains"],
    "line": ["results", FEATURES, "--kind", "line"],
    "sensitivity": ["results", "--published"],
    "typefaces": ["results", TYPEFACES, "--kind", "differences", "--selection", "last_evaluations"],
    "pacs224-mixing": ["results", PACS224, "--kind", "mixing"],
    "cd": ["cd", TYPEFACES],
    "weights": ["weights"],
    "pacs-curves": ["results", f"{SAVED}/curves-sketch-2.npz"],
    "pacs-flatness": ["results", f"{SAVED}/flatness-0.npz"],
    "pacs-surface": ["results", f"{SAVED}/surface-photo-0.npz"],
}
# Width, height and colour scheme (0 is dark) of pictures of the report
SCREENS = {
    "report": (1280, 1000, 1),
    "report-dark": (1280, 1000, 0),
    "report-phone": (390, 844, 1),
}


def main(sweep: Path | None) -> None:
    """Train what is missing, draw diagrams and figures, photograph the report."""
    diagrams.main()
    readme.main()
    if sweep:
        if not (sweep / "sweeps").is_dir():
            fgmix("sweep", *PLAN, *OPTIONS, "--out", str(sweep))
        draw_figures(first_trial(sweep), sweep)
    with tempfile.TemporaryDirectory() as place:
        for name, words in FROM_RECORDS.items():
            written = fgmix("plot", *words, "--out", place).splitlines()
            shrink(Path(written[0]), HERE / f"{name}.png")
        save_figure(draw(describe_angles()), Path(place, "angles"), None, ["png"])
        shrink(Path(place, "angles.png"), HERE / "rotated-digits.png")
        report = Path(place, "report.html")
        fgmix("report", FEATURES, "--format", "html", "--title", TITLE, "--out", str(report))
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
        "tsne": ["tsne", *fgmix_runs, "--samples", "60", "--mixed", "150"],
        "flatness": ["flatness", *every, "--directions", "20", "--samples", "100"],
        "flatness-network": ["flatness", *every[-3:], "--scope", "network", "--directions", "10", "--samples", "20"],
        "surface": ["surface", *two, "--resolution", "13", "--samples", "60"],
        "scores": ["scores", fgmix_runs[-1]],
    }
    for name, words in commands.items():
        written = fgmix("plot", *words, "--out", str(sweep / "figures")).splitlines()
        shrink(Path(written[0]), HERE / f"{name}.png")


def describe_angles() -> Chart:
    """Differences from ERM by test angle, paired by seed, with 95 % t intervals; variants of FGMix in grey."""
    found: dict[str, dict[int, Any]] = {}
    for run in read_runs(ROOT / ANGLES).records:
        of = run.spec.settings
        name = {"erm": "ERM", "fgmix": "FGMix"}.get(run.spec.algorithm, f"random mixing (λ = {of.get('lam', 1):g})")
        changed = {
            k: of[k] for k, usual in (("gamma", None), ("eta2", 1e-3), ("scale", "raw")) if of.get(k, usual) != usual
        }
        tests = run.spec.test_domains
        last = [[each.accuracy["raw"][t]["train"] for t in tests] for each in run.evaluations[-5:]]
        found.setdefault(f"{name} {changed or ''}".strip(), {})[run.spec.trial_seed] = 100 * np.mean(last, axis=0)
    angles = [float(test.strip("°")) for test in tests]
    looks = {"FGMix": "#d55e00", "random mixing (λ = 1)": "#0072b2", "random mixing (λ = 3)": "#009e73"}
    shapes = dict(zip(looks, "so^"))
    marks: list[Mark] = [Line("", [0, 90], [0, 0], "#999999", dashed=True, width=1)]
    for name in sorted(set(found) - {"ERM"}, key=lambda name: (name in looks, name)):
        d = np.array([found[name][seed] - erm for seed, erm in found["ERM"].items()])
        colour, (low, high) = looks.get(name, "#bbbbbb"), np.transpose([MeanDifference({0: x}).interval() for x in d.T])
        if name in looks:
            marks += [
                Band(name, angles, low, high, colour),
                *connect_points(name, angles, d.mean(0), colour, shapes[name]),
            ]
        else:
            marks.append(Line("FGMix, other settings", angles, d.mean(0), colour))
    marks.append(Words([20], [1.5], ["between the source angles"]))
    marks.append(Band("", [0, 40], [-0.4, -0.4], [1.8, 1.8], "#bbbbbb"))
    x, y = Axis("Test angle (degrees)", low=0.0, high=90.0), Axis("Accuracy − ERM's (points)", low=-0.4, high=1.8)
    caption = "Means over 24 seeds and 95 % t intervals, paired by seed. Source angles: 0°, 20° and 40°."
    return Chart("Rotated digits", caption, [Panel("", x, y, marks)])


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
