"""Draw grey images of five kinds of lesions as seven scanners show them: a set of domains of any size.

    python benchmarks/studies/vendor_images.py OUT [--images 10000] [--side 72]

writes OUT/vendor/class/number.png. A lesion is a closed curve r(φ) = r₀ (1 + a cos(kφ + φ₀)) on tissue of smooth noise;
vendors differ in blur, grain, contrast, polarity, tissue and artefacts. Every image follows from its number alone, so
that a smaller set is a part of a larger one.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy.ndimage import gaussian_filter

Pixels = npt.NDArray[np.float64]

# by class: k, and the range of a
CURVES = {
    "round": (2, (0.0, 0.06)),
    "oval": (2, (0.25, 0.4)),
    "lobed": (3, (0.2, 0.32)),
    "spiked": (9, (0.15, 0.3)),
    "ring": (2, (0.0, 0.06)),
}


@dataclass(frozen=True)
class Vendor:
    """How a scanner shows a lesion."""

    blur: float = 0.7  # standard deviation of the point spread, in pixels
    grain: float = 0.04  # standard deviation of the noise of a pixel
    gamma: float = 1.0
    contrast: float = 0.45  # of the lesion over tissue
    tissue: float = 6.0  # scale of its texture, in pixels
    shade: float = 0.0  # darkening towards the corners
    lines: float = 0.0  # amplitude of horizontal lines
    is_inverted: bool = False


VENDORS = {
    "aster": Vendor(),
    "borealis": Vendor(blur=1.6, grain=0.02, gamma=1.4),
    "corvus": Vendor(grain=0.12, contrast=0.35),
    "delphi": Vendor(tissue=2.5, shade=0.5, gamma=0.7),
    "elara": Vendor(lines=0.12, blur=1.0, contrast=0.5),
    "fornax": Vendor(is_inverted=True, grain=0.06),
    "gemini": Vendor(blur=2.0, grain=0.08, contrast=0.3, shade=0.3),
}


def draw(number: int, side: int) -> tuple[str, str, Image.Image]:
    """Draw image `number`; return its vendor, its class and the image."""
    names, kinds = list(VENDORS), list(CURVES)
    name, kind = names[number % len(names)], kinds[number // len(names) % len(kinds)]
    rng, vendor = np.random.default_rng([number, side]), VENDORS[name]
    pixels = 0.35 + 0.6 * _draw_tissue(rng, side, vendor.tissue) + vendor.contrast * _draw_lesion(rng, side, kind)
    pixels = gaussian_filter(pixels, vendor.blur)
    y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
    pixels = pixels * (1 - vendor.shade * (x**2 + y**2) / 2) + vendor.lines * np.sin(side * y)
    pixels = (pixels + vendor.grain * rng.normal(size=pixels.shape)).clip(0, 1) ** vendor.gamma
    levels = np.round(255 * (1 - pixels if vendor.is_inverted else pixels)).astype(np.uint8)
    return name, kind, Image.fromarray(levels)


def _draw_tissue(rng: np.random.Generator, side: int, scale: float) -> Pixels:
    """Draw smooth noise of mean 0 and standard deviation 0.15."""
    smooth = gaussian_filter(rng.normal(size=(side, side)), scale)
    noise: Pixels = 0.15 * (smooth - smooth.mean()) / smooth.std()
    return noise


def _draw_lesion(rng: np.random.Generator, side: int, kind: str) -> Pixels:
    """Draw the lesion: 1 inside, 0 outside, somewhere near the middle."""
    k, (least, most) = CURVES[kind]
    y, x = np.mgrid[:side, :side] / side - rng.uniform(0.38, 0.62, (2, 1, 1))
    r0, a, phase = rng.uniform(0.14, 0.26), rng.uniform(least, most), rng.uniform(0, 2 * np.pi)
    r = np.hypot(x, y) / (r0 * (1 + a * np.cos(k * np.arctan2(y, x) + phase)))
    inside: Pixels = ((r < 1) & ((r > 0.55) if kind == "ring" else True)).astype(np.float64)
    return inside


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--side", type=int, default=72)
    options = parser.parse_args()
    for number in range(options.images):
        vendor, kind, image = draw(number, options.side)
        folder = options.out / vendor / kind
        folder.mkdir(parents=True, exist_ok=True)
        image.save(folder / f"{number:05}.png")


if __name__ == "__main__":
    main()
