"""Find images of the same object: near-duplicates by their pixels, and twins by features of a network.

A near-duplicate is a picture in other tones, another size or compression, mirrored or inverted.

    c = low frequencies of the cosine transform of the image in 32×32 grey pixels, without the mean, ‖c‖ = 1
    b = sign(c − m)                      m: median of c over all images; images in one pose share the signs of m
    similarity(i, j) = max (b_i · b_j′) / 255        j′: image j, its mirror image, and the negatives of both

Unrelated images have a similarity near 0, with a standard deviation of 1/16. Pictures that are cropped by more than a
few per cent, or drawn anew, are not found.

Twins are two images of different domains that single each other out, such as one object in two styles.

    z = features of a frozen network, standardised by the mean and scale of the image's own domain, ‖z‖ = 1
    i and j are twins  ⇔  z_i·z_j − max_{j′ ≠ j} z_i·z_j′ ≥ 0.2  and  z_i·z_j − max_{i′ ≠ i} z_i′·z_j ≥ 0.2

with i′ and j′ of the domains of i and j. Two dogs are alike, but so are other dogs. docs/data/images.md has
measurements of both.

Zauner, "Implementation and Benchmarking of Perceptual Image Hash Functions", 2010, https://phash.org/docs/pubs/thesis_zauner.pdf,
has the transform; the median, the mirror image and the negative are ours. Lowe, "Distinctive Image Features from
Scale-Invariant Keypoints", 2004, https://doi.org/10.1023/B:VISI.0000029664.99615.94, compares matches with the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from scipy.fft import dctn
from torch import Tensor

from fgmix.data.standardisation import RESOLVED

Floats = npt.NDArray[np.float32]

SIDE = 32  # pixels
FREQUENCIES = 16  # of each direction
SIMILAR = 0.7  # similarity from which on two images are near-duplicates
BLOCK = 1000  # images that are compared with all others at a time
MOST = 100_000  # images that are compared: four minutes on one core by pixels
LEAD = 0.2  # of a twin over the second most similar image

# Sign of every frequency in the mirror image: odd ones across change.
_MIRROR = np.tile(np.where(np.arange(FREQUENCIES) % 2, -1, 1), (FREQUENCIES, 1)).astype(np.float32).reshape(-1)


def describe_image(image: Image.Image) -> Floats:
    """Compute the low frequencies c of an image, (256,)."""
    pixels = np.asarray(image.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.float32)
    c = dctn(pixels, norm="ortho")[:FREQUENCIES, :FREQUENCIES].reshape(-1)
    c[0] = 0.0
    low: Floats = c / max(float(np.linalg.norm(c)), 1e-6)
    return low


def find_pairs(c: Floats, least: float = SIMILAR) -> list[tuple[int, int, float]]:
    """Find all pairs of images whose similarity is at least `least`, by their places, the most similar first.

    c (n, 256) are the low frequencies of the images. The similarity is the last number of a pair.
    """
    if len(c) < 2:
        return []
    best: dict[tuple[int, int], float] = {}
    m = np.median(c, axis=0)
    b = _signs(c, m)
    for other in (c, c * _MIRROR, -c, -c * _MIRROR):
        for i, j, similarity in _compare(b, _signs(other, m), least):
            best[i, j] = max(best.get((i, j), 0.0), similarity)
    return sorted(((i, j, similarity) for (i, j), similarity in best.items()), key=lambda pair: (-pair[2], pair))


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


Place = tuple[int, int]  # number of a domain, and of a sample in it


def find_twins(features: Sequence[Floats]) -> list[tuple[Place, Place]]:
    """Find all twins among the features (n, f) of each domain, those with the largest lead first.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> plain, other = (np.float32(rng.normal(size=(9, 100))) for _ in range(2))
        >>> other[4] = plain[7]
        >>> find_twins([plain, 3 + 2 * other])  # in another style
        [((0, 7), (1, 4))]
    """
    codes = [_normalise(x) for x in features]
    found = []
    for a, b in combinations(range(len(codes)), 2):
        to, lead = _find_nearest(codes[a], codes[b])
        back, other_lead = _find_nearest(codes[b], codes[a])
        for i, j in enumerate(to.tolist()):
            least = min(float(lead[i]), float(other_lead[j]))
            if back[j] == i and least >= LEAD:
                found.append((least, (a, i), (b, j)))
    return [(one, other) for _, one, other in sorted(found, key=lambda each: -each[0])]


def _normalise(x: Floats) -> Tensor:
    mean, scale = x.mean(0), x.std(0)
    scale[scale <= RESOLVED["float32"] * np.abs(x).max(0)] = np.inf  # a feature that does not vary says nothing
    return torch.nn.functional.normalize(torch.from_numpy((x - mean) / scale))


def _find_nearest(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Find the row of `b` that is the most similar to each of `a`, and its lead over the second: 0 if it is alone."""
    best = [(block @ b.T).topk(min(2, len(b))) for block in a.split(BLOCK)]
    values, places = (torch.cat(each) for each in zip(*best))
    return places[:, 0], values[:, 0] - values[:, -1]
