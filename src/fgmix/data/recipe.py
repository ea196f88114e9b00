"""How an image file becomes what the decoded cache keeps: reduced to what a network of a given input can see.

An image is reduced so that its shorter side is at most ⌈S/√0.7⌉ for networks that see S×S: the augmentation crops down
to 0.7 of the area, so a square crop still has S pixels a side. Images are never enlarged and keep their aspect.
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
SMALLEST_CROP = 0.7  # part of the area that the augmentation keeps at least
IMAGE_SIZE = 224
LARGEST = 4096  # side in pixels: a batch of 32 such images takes 6 GB
QUALITY = 95  # off by 0.4 grey levels on average at 224 px, by 1.2 at 64 px, on every 50th image of PACS
JPEG_SHARE = 0.25  # bytes of such a JPEG against its pixels': 0.12 at 224 px, 0.24 at 64 px, on the same images
SAMPLED = 64  # files whose headers tell how large the whole will be


@dataclass(frozen=True)
class Recipe:
    """How image files become what the cache keeps.

    Args:
        image_size: S, the side of the square that a network will see.
        background: colour under transparent pixels, #rrggbb.
        encoding: pixels as they are, or JPEGs.
    """

    image_size: int
    background: str
    encoding: Encoding

    def key(self, contents: str) -> str:
        """Name of the cache of files with these contents."""
        return fingerprint_of([FORMAT, f"S={self.image_size}", self.background, self.encoding, contents])

    def keep(self, path: Path) -> Kept | Unreadable:
        """An image file as the cache keeps it. Call it inside `quiet_decoding`."""
        picture = try_decode(path, self.background)
        if isinstance(picture, Unreadable):
            return picture
        image = _reduced(picture.image, self.image_size)
        return Kept(image.tobytes() if self.encoding == "pixels" else _as_jpeg(image), image.size, picture.changes)

    def bytes_of(self, files: Sequence[Path]) -> float:
        """Bytes that the cache of these files will take; a sample of headers tells well enough."""
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
    """The side of the square that a network sees."""
    if image_size is None:
        return IMAGE_SIZE
    if isinstance(image_size, bool) or not isinstance(image_size, int | np.integer) or not 1 <= image_size <= LARGEST:
        raise bad_value("image_size", f"a number of pixels from 1 to {LARGEST}", image_size)
    return int(image_size)


def reduced(path: Path, image_size: int, background: str = BACKGROUND) -> Image.Image | Unreadable:
    """An image file as the cache keeps its pixels, or why it cannot be decoded. Call it inside `quiet_decoding`."""
    picture = try_decode(path, background)
    return picture if isinstance(picture, Unreadable) else _reduced(picture.image, image_size)


def stored_size(width: int, height: int, image_size: int) -> tuple[int, int]:
    """(width, height) under which an image is kept.

    >>> stored_size(640, 480, 224), stored_size(227, 227, 224)
    ((357, 268), (227, 227))
    """
    shorter = ceil(image_size / sqrt(SMALLEST_CROP))
    scale = shorter / min(width, height)
    return (round(width * scale), round(height * scale)) if scale < 1 else (width, height)


def _reduced(image: Image.Image, image_size: int) -> Image.Image:
    size = stored_size(*image.size, image_size)
    # Lanczos, because a bilinear resize follows: against resizing once, the pair is off by 0.65 grey levels on
    # photos at 224 px; bilinear twice by 1.0
    return image if size == image.size else image.resize(size, Image.Resampling.LANCZOS)


def _as_jpeg(image: Image.Image) -> bytes:
    data = io.BytesIO()
    image.save(data, "JPEG", quality=QUALITY, subsampling=0)
    return data.getvalue()
