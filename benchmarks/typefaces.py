"""Draw the glyphs that the dataset `typefaces` embeds: `python -m benchmarks.typefaces FOLDER`.

Sources, versions and licences are in src/fgmix/data/typefaces.csv. Debian packages are downloaded to FOLDER and
unpacked there (`apt-get download`, `dpkg-deb`); nothing is installed. The result, src/fgmix/data/typefaces.npz,
depends on the versions of Pillow and of its FreeType, which is why it is kept: whoever trains needs neither.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fgmix.data import typefaces

HEIGHT = 384  # font size in pixels before the reduction
LEVELS = 16  # grey levels that are kept: a third of the file's size, and no visible difference


def draw_glyphs(font_file: Path) -> np.ndarray:
    """Draw the ten letters, uint8 (10, 48, 48): white on black, centred, with the longer side of the ink 36 pixels."""
    font = ImageFont.truetype(font_file, HEIGHT, layout_engine=ImageFont.Layout.BASIC)
    return np.stack([draw_glyph(font, letter) for letter in typefaces.CLASSES])


def draw_glyph(font: ImageFont.FreeTypeFont, letter: str) -> np.ndarray:
    """Draw one letter, cropped to its ink, reduced and centred."""
    canvas = Image.new("L", (4 * HEIGHT, 4 * HEIGHT))
    ImageDraw.Draw(canvas).text((HEIGHT, HEIGHT), letter, fill=255, font=font)
    ink = canvas.crop(canvas.getbbox())
    longer = max(ink.size)
    size = [max(1, round(side * typefaces.INK / longer)) for side in ink.size]
    small = ink.resize((size[0], size[1]), Image.Resampling.BOX)
    glyph = Image.new("L", (typefaces.GLYPH, typefaces.GLYPH))
    glyph.paste(small, tuple((typefaces.GLYPH - side) // 2 for side in size))
    return np.rint(np.asarray(glyph) / 255 * (LEVELS - 1)).astype(np.uint8)


def find_font(row: dict[str, str], folder: Path) -> Path:
    """Find the font file of a row: matplotlib's, or that of a Debian package, which is downloaded if missing."""
    registry, package, version = row["package"].split()
    if registry == "PyPI":
        import matplotlib

        return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / row["file"]
    unpacked = folder / package
    if not unpacked.is_dir():
        subprocess.run(["apt-get", "download", f"{package}={version}"], cwd=folder, check=True)
        (archive,) = folder.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, unpacked], check=True)
    return next(unpacked.rglob(row["file"]))


def main(folder: Path) -> None:
    """Draw every typeface and write the file that the package embeds."""
    with typefaces.SOURCES.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    glyphs = {row["typeface"]: draw_glyphs(find_font(row, folder)) for row in rows}
    np.savez_compressed(typefaces.GLYPHS, **glyphs)
    print(f"{typefaces.GLYPHS}: {len(glyphs)} typefaces, {typefaces.GLYPHS.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
