"""Collect the emoji of seven vendors: the same concepts in seven styles, with the concept as the group of an image.

    npm install emoji-datasource-{apple,facebook,google,twitter}@16 emoji-assets@11 openmoji@17; pip install resvg-py
    python benchmarks/studies/emoji_vendors.py node_modules OUT [--concepts 1025] [--side 72]

writes OUT/vendor/category/code.png and OUT/manifest.csv. Domains are the vendors, classes the categories of Unicode; a
concept is a code that all vendors draw, without its skin tones. The packages' licences are their own: nothing of them
is in this repository.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
from pathlib import Path

import numpy as np
from PIL import Image

VENDORS = {
    "apple": "emoji-datasource-apple/img/apple/64/{lower}.png",
    "facebook": "emoji-datasource-facebook/img/facebook/64/{lower}.png",
    "google": "emoji-datasource-google/img/google/64/{lower}.png",
    "twitter": "emoji-datasource-twitter/img/twitter/64/{lower}.png",
    "joypixels": "emoji-assets/png/64/{short}.png",
    "openmoji": "openmoji/color/svg/{upper}.svg",
    "outline": "openmoji/black/svg/{upper}.svg",
}


def find_files(packages: Path, code: str) -> dict[str, Path]:
    """Find the drawing of a code by each vendor that has one."""
    plain = "-".join(part for part in code.lower().split("-") if part != "fe0f")
    joined = "-".join(part for part in plain.split("-") if part != "200d")
    found = {}
    for vendor, form in VENDORS.items():
        for each in dict.fromkeys((code, plain)):
            path = packages / form.format(lower=each.lower(), upper=each.upper(), short=joined)
            if path.is_file():
                found[vendor] = path
                break
    return found


def read_image(path: Path, side: int) -> Image.Image:
    """Read a drawing on a white square."""
    if path.suffix == ".svg":
        from resvg_py import svg_to_bytes

        source: Path | io.BytesIO = io.BytesIO(bytes(svg_to_bytes(svg_path=str(path), width=side, height=side)))
    else:
        source = path
    with Image.open(source) as file:
        image = file.convert("RGBA").resize((side, side), Image.Resampling.BICUBIC)
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image).convert("RGB")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("packages", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--concepts", type=int, default=1025, help="how many, chosen at random")
    parser.add_argument("--side", type=int, default=72)
    options = parser.parse_args()
    table = json.loads((options.packages / "emoji-datasource-apple/emoji.json").read_text())
    concepts = {each["unified"]: each["category"] for each in table if each["category"] != "Component"}
    files = {code: find_files(options.packages, code) for code in sorted(concepts)}
    codes = [code for code, found in files.items() if len(found) == len(VENDORS)]
    chosen = np.random.default_rng(0).permutation(codes)[: options.concepts].tolist()
    rows = []
    for code in sorted(chosen):
        label = concepts[code].lower().replace(" & ", "-").replace(" ", "-")
        for vendor, path in files[code].items():
            name = Path(vendor, label, f"{code.lower()}.png")
            (options.out / name).parent.mkdir(parents=True, exist_ok=True)
            read_image(path, options.side).save(options.out / name)
            rows.append((str(name), vendor, label, code))
    with (options.out / "manifest.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "domain", "label", "group"), *rows])
    print(f"{len(rows)} images of {len(chosen)} concepts that all {len(VENDORS)} vendors draw, of {len(codes)}")


if __name__ == "__main__":
    main()
