"""`typefaces`: 30 domains of 28×28 grey capital letters, each domain a typeface; embedded, without a download.

The package holds one glyph of each letter and typeface, drawn by benchmarks/typefaces.py from free fonts, which
typefaces.csv lists with their licences. Every sample is a glyph of random size, width, slant, position, weight and
contrast, with noise. All of it is computed by numpy in a second, hence not cached, and needs no font, FreeType or
Pillow: the pixels depend on this file, on the glyphs and on numpy's random numbers.

The ranges were chosen such that the accuracy of ERM on a held-out typeface is clearly lower than in-domain but far
above chance (accuracies are in docs/data/typefaces.md).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from fgmix.data.dataset import ArrayInputs, Domain, DomainDataset, fingerprint_of
from fgmix.data.mnist import Digits, Pixels, check_only_size
from fgmix.data.registry import LoadOptions, register_dataset
from fgmix.seeding import numpy_generator

GLYPHS = Path(__file__).with_name("typefaces.npz")  # typeface → uint8 (10, 48, 48), 16 grey levels
SOURCES = GLYPHS.with_suffix(".csv")
CLASSES = tuple("ABEGKMQRSX")  # letters that differ much between typefaces; with all 26, runs take three times as long
SIDE = 28
PER_CLASS = 40  # samples of each letter in a typeface
GLYPH = 48  # side of a glyph's raster
INK = 36  # longer side of its ink, centred in the raster: the slant has room

Floats = npt.NDArray[np.float64]


@register_dataset("typefaces", "embedded: 28×28 grey capital letters in 30 domains (typefaces)", depends_on_trial=False)
def load_typefaces(options: LoadOptions) -> DomainDataset:
    """Load the embedded letters: 30 domains, 10 classes, inputs (1, 28, 28); the same for every trial seed."""
    check_only_size("typefaces", SIDE, options)
    domains = {name: draw_domain(name, glyphs) for name, glyphs in read_glyphs().items()}
    parts = tuple(Domain(name, ArrayInputs(x), y) for name, (x, y) in domains.items())
    fingerprint = fingerprint_of([*CLASSES, *(part for name, (x, y) in domains.items() for part in (name, x, y))])
    return DomainDataset("typefaces", parts, CLASSES, (1, SIDE, SIDE), "small_images", fingerprint)


def read_glyphs() -> dict[str, Floats]:
    """Read the glyphs of every typeface, (10, 48, 48) in [0, 1]."""
    with np.load(GLYPHS, allow_pickle=False) as packed:
        return {name: packed[name] / 15 for name in packed.files}


def draw_domain(name: str, glyphs: Floats) -> Digits:
    """Draw 40 samples of each letter of a typeface, shuffled: images uint8 (400, 1, 28, 28) and labels."""
    rng = numpy_generator("typefaces", name)
    labels = rng.permutation(np.repeat(np.arange(len(CLASSES)), PER_CLASS))
    return paint(place(glyphs[labels], rng), rng)[:, None], labels


def place(glyphs: Floats, rng: np.random.Generator) -> Floats:
    """Scale, widen, slant and shift glyphs (n, 48, 48) at random; return the coverage of each pixel, (n, 28, 28)."""
    n = len(glyphs)
    step = INK / rng.uniform(17, 24, n)  # glyph pixels per pixel
    widening, slant = rng.uniform(0.8, 1.2, n), rng.uniform(-0.2, 0.2, n)
    x, y = rng.uniform(-1.5, 1.5, (2, n))  # position of the glyph's centre relative to the image's
    rows, columns = _resampling(step, y), _resampling(step / widening, x)
    placed: Floats = rows @ _slant(glyphs, slant) @ columns.transpose(0, 2, 1)
    return placed


def _resampling(step: Floats, shift: Floats) -> Floats:
    """Compute matrices (n, 28, 48) that resample an axis with triangular kernels two steps wide (antialiased)."""
    pixel = np.arange(SIDE) - (SIDE - 1) / 2
    centre = (pixel - shift[:, None]) * step[:, None] + (GLYPH - 1) / 2  # of each pixel on the glyph, (n, 28)
    radius = np.maximum(step, 1)[:, None, None]
    return np.maximum(0, 1 - np.abs(np.arange(GLYPH) - centre[:, :, None]) / radius) / radius


def _slant(glyphs: Floats, slant: Floats) -> Floats:
    """Shift every row of the glyphs by `slant` times its distance from the middle, with linear interpolation."""
    row, column = np.arange(GLYPH) - (GLYPH - 1) / 2, np.arange(GLYPH)
    source = column + slant[:, None, None] * row[:, None]  # (n, 48, 48)
    left = np.floor(source).astype(np.int64)
    share = source - left
    padded = np.pad(glyphs, ((0, 0), (0, 0), (1, 1)))  # beyond an edge is nothing
    ends = (np.take_along_axis(padded, np.clip(left + i, 0, GLYPH + 1), 2) for i in (1, 2))
    return next(ends) * (1 - share) + next(ends) * share


def paint(ink: Floats, rng: np.random.Generator) -> Pixels:
    """Paint grey images (n, 28, 28): thin or bold light ink on a dark ground, with noise."""
    n = len(ink)
    weight = np.exp(rng.uniform(-0.7, 0.7, (n, 1, 1)))
    ground, light = rng.uniform(0, 40, (n, 1, 1)), rng.uniform(180, 255, (n, 1, 1))
    noise = rng.standard_normal(ink.shape) * rng.uniform(0, 15, (n, 1, 1))
    image = ground + (light - ground) * np.minimum(ink, 1) ** weight + noise
    painted: Pixels = np.rint(np.clip(image, 0, 255)).astype(np.uint8)
    return painted
