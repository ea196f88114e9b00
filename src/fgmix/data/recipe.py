"""How image files are stored in the decoded cache: reduced to the resolution that a network's input size needs.

For S×S inputs, an image is reduced so that its shorter side is at most ⌈S/√0.7⌉: the augmentation crops to at least 0.7
of the area, so that a square crop of a square image still has S pixels per side. Images are never enlarged and keep
their aspect ratio.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from fgmix.data._dataset import fingerprint_of
from fgmix.data.images import BACKGROUND, Change, Unreadable, quiet_decoding, size_of, try_decode
from fgmix.errors import bad_value

Encoding = Literal["pixels", "jpeg"]

FORMAT = "rgb rows, lanczos, 2"  # part of the key: change it with anything that changes the stored bytes
SMALLEST_CROP = 0.7  # smallest share of the area that the augmentation keeps
IMAGE_SIZE = 224
LARGEST = 4096  # side in pixels: a batch of 32 such images takes 6 GB
QUALITY = 95  # mean error of 0.4 grey levels at 224 px and 1.2 at 64 px, on every 50th image of PACS
JPEG_SHARE = 0.25  # bytes of such a JPEG relative to its pixels: 0.12 at 224 px, 0.24 at 64 px, on the same images
SAMPLED = 64  # files whose headers are read to estimate the total size


@dataclass(frozen=True)
class Recipe:
    """How image files are stored in the cache.

    Args:
        image_size: S, the side of the square input images.
        background: colour behind transparent pixels, #rrggbb.
        encoding: raw pixels, or JPEGs.
    """

    image_size: int
    background: str
    encoding: Encoding

    def key(self, contents: str) -> str:
        """Name of the cache of files with these contents."""
        return fingerprint_of([FORMAT, f"S={self.image_size}", self.background, self.encoding, contents])

    def keep(self, path: Path) -> Kept | Unreadable:
        """An image file as stored in the cache. Call it inside `quiet_decoding`."""
        picture = try_decode(path, self.background)
        if isinstance(picture, Unreadable):
            return picture
        image = _reduced(picture.image, self.image_size)
        return Kept(image.tobytes() if self.encoding == "pixels" else _as_jpeg(image), image.size, picture.changes)

    def bytes_of(self, files: Sequence[Path]) -> float:
        """Estimated size in bytes of the cache of these files, from the headers of a sample of them."""
        with quiet_decoding():
            sizes = [size_of(path) for path in files[:: max(1, len(files) // SAMPLED)]]
        areas = [np.prod(stored_size(*size, self.image_size)) for size in sizes if size is not None and min(size) > 0]
        share = 1.0 if self.encoding == "pixels" else JPEG_SHARE
        return len(files) * 3 * share * float(np.mean(areas)) if areas else 0.0


@dataclass(frozen=True)
class Kept:
    """The bytes of one image, its (width, height), and what decoding changed."""

    data: bytes
    size: tuple[int, int]
    changes: Change


def checked_size(image_size: int | None) -> int:
    """The side of the square input images; UserError if it is not valid."""
    if image_size is None:
        return IMAGE_SIZE
    if isinstance(image_size, bool) or not isinstance(image_size, int | np.integer) or not 1 <= image_size <= LARGEST:
        raise bad_value("image_size", f"a number of pixels from 1 to {LARGEST}", image_size)
    return int(image_size)


def reduced(path: Path, image_size: int, background: str = BACKGROUND) -> Image.Image | Unreadable:
    """An image file, reduced as for the cache, or why it cannot be decoded. Call it inside `quiet_decoding`."""
    picture = try_decode(path, background)
    return picture if isinstance(picture, Unreadable) else _reduced(picture.image, image_size)


def stored_size(width: int, height: int, image_size: int) -> tuple[int, int]:
    """(width, height) of an image in the cache.

    >>> stored_size(640, 480, 224), stored_size(227, 227, 224)
    ((357, 268), (227, 227))
    """
    shorter = ceil(image_size / sqrt(SMALLEST_CROP))
    scale = shorter / min(width, height)
    return (round(width * scale), round(height * scale)) if scale < 1 else (width, height)


def _reduced(image: Image.Image, image_size: int) -> Image.Image:
    size = stored_size(*image.size, image_size)
    # Lanczos, because a bilinear resize follows: compared with a single resize, the two differ by 0.65 grey levels on
    # photos at 224 px; bilinear twice, by 1.0
    return image if size == image.size else image.resize(size, Image.Resampling.LANCZOS)


def _as_jpeg(image: Image.Image) -> bytes:
    data = io.BytesIO()
    image.save(data, "JPEG", quality=QUALITY, subsampling=0)
    return data.getvalue()
