"""Find near-duplicate images: a picture in other tones, another size or compression, mirrored or inverted.

    c = low frequencies of the cosine transform of the image in 32×32 grey pixels, without the mean, ‖c‖ = 1
    b = sign(c − m)                      m: median of c over all images; images in one pose share the signs of m
    similarity(i, j) = max (b_i · b_j′) / 255        j′: image j, its mirror image, and the negatives of both

Unrelated images have a similarity near 0, with a standard deviation of 1/16. Pictures that are cropped by more than a
few per cent, or drawn anew, are not found. docs/data/images.md has measurements.

Zauner, "Implementation and Benchmarking of Perceptual Image Hash Functions", 2010, https://phash.org/docs/pubs/thesis_zauner.pdf,
has the transform; the median, the mirror image and the negative are ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy.fft import dctn

Floats = npt.NDArray[np.float32]

SIDE = 32  # pixels
FREQUENCIES = 16  # of each direction
SIMILAR = 0.7  # similarity from which on two images are near-duplicates
BLOCK = 1000  # images that are compared with all others at a time
MOST = 100_000  # images that are compared: four minutes on one core

# Sign of every frequency in the mirror image: odd ones across change.
_MIRROR = np.tile(np.where(np.arange(FREQUENCIES) % 2, -1, 1), (FREQUENCIES, 1)).astype(np.float32).reshape(-1)


class Pair(NamedTuple):
    """Two images, by their places, and their similarity."""

    first: int
    second: int
    similarity: float


def describe_image(image: Image.Image) -> Floats:
    """Compute the low frequencies c of an image, (256,)."""
    pixels = np.asarray(image.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.float32)
    c = dctn(pixels, norm="ortho")[:FREQUENCIES, :FREQUENCIES].reshape(-1)
    c[0] = 0.0
    low: Floats = c / max(float(np.linalg.norm(c)), 1e-6)
    return low


def find_pairs(c: Floats, least: float = SIMILAR) -> list[Pair]:
    """Find all pairs of images with a similarity of at least `least`, the most similar first.

    Args:
        c: low frequencies of the images, (n, 256).
        least: the similarity.
    """
    if len(c) < 2:
        return []
    best: dict[tuple[int, int], float] = {}
    m = np.median(c, axis=0)
    b = _signs(c, m)
    for other in (c, c * _MIRROR, -c, -c * _MIRROR):
        for i, j, similarity in _compare(b, _signs(other, m), least):
            best[i, j] = max(best.get((i, j), 0.0), similarity)
    return sorted((Pair(i, j, similarity) for (i, j), similarity in best.items()), key=lambda p: (-p.similarity, p))


def _signs(c: Floats, m: Floats) -> Floats:
    return np.where(c > m, 1, -1).astype(np.float32)[:, 1:]


def _compare(a: Floats, b: Floats, least: float) -> Iterator[tuple[int, int, float]]:
    """Yield the rows i < j of `a` and `b` that agree, and how much."""
    for start in range(0, len(a), BLOCK):
        agreement = a[start : start + BLOCK] @ b[start:].T / a.shape[1]
        rows, columns = np.nonzero(agreement >= least)
        for i, j in zip(rows.tolist(), columns.tolist()):
            if i < j:
                yield start + i, start + j, float(agreement[i, j])
