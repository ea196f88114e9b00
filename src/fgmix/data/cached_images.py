"""Decoded images in memory and in the cache's memory-mapped file, where each is verified when it is first read."""

from __future__ import annotations

import io
import os
import shutil
import sys
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from fgmix.data._arrays_file import read_arrays
from fgmix.data._dataset import Indices
from fgmix.data.images import Unreadable, quiet_decoding
from fgmix.data.recipe import Recipe
from fgmix.errors import UserError
from fgmix.seals import Damaged

Pixels = npt.NDArray[np.uint8]

IMAGES, INDEX = "images.bin", "index.npz"  # a cache's files


@dataclass(frozen=True)
class DecodedImages:
    """Images of different sizes, one after the other in one array.

    Args:
        key: digest of what they were made from.
        pixels: all bytes.
        offsets: where each image starts.
        heights: of the images; 0 for a file that cannot be decoded.
        widths: of the images.
    """

    key: str
    pixels: Pixels
    offsets: Indices
    heights: Indices
    widths: Indices

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, row: int) -> Pixels:
        """The image (h, w, 3)."""
        start, h, w = int(self.offsets[row]), int(self.heights[row]), int(self.widths[row])
        return self.pixels[start : start + h * w * 3].reshape(h, w, 3)

    @property
    def readable(self) -> Indices:
        """Rows that hold an image."""
        return np.flatnonzero(self.heights)


@dataclass(frozen=True)
class CachedImages(DecodedImages):
    """Images in the cache's file, memory-mapped; each is verified when it is first read.

    Args:
        lengths: bytes of each image.
        checksums: CRC-32 of each image's bytes.
        changes: `Change` flags of each image.
        recipe: how they were made.
        file: where they are.
        sources: the image files; row i was made from sources[i].
    """

    lengths: Indices
    checksums: npt.NDArray[np.uint32]
    changes: npt.NDArray[np.uint8]
    recipe: Recipe
    file: Path
    sources: Sequence[Path]
    _verified: npt.NDArray[np.bool_] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_verified", np.zeros(len(self), dtype=np.bool_))

    def __getitem__(self, row: int) -> Pixels:
        """The image (h, w, 3)."""
        if not self._verified[row]:
            if not self.is_sound(row):
                self.repair(row)
            self._verified[row] = True
        if self.recipe.encoding == "pixels":
            return super().__getitem__(row)
        with Image.open(io.BytesIO(self._stored(row).data), formats=("JPEG",)) as image:
            return np.array(image)

    def is_sound(self, row: int) -> bool:
        """Whether an image's bytes are those that were written."""
        return int(self.checksums[row]) == checksum(self._stored(row).data)

    def repair(self, row: int) -> None:
        """Decode an image again from its file; UserError, and no cache any more, if that gives something else."""
        source = self.sources[row]
        with quiet_decoding():
            kept = self.recipe.keep(source)
        if isinstance(kept, Unreadable) or checksum(kept.data) != int(self.checksums[row]):
            shutil.rmtree(self.file.parent, ignore_errors=True)
            raise UserError(
                f"Expected {source} decoded in {self.file}. Found damaged bytes, and {source} is no longer the same. "
                f"{self.file.parent} is deleted. Run the same command again: it is rebuilt."
            )
        self._stored(row)[:] = np.frombuffer(kept.data, np.uint8)  # in this process's copy of the page
        with suppress(OSError), open(self.file, "r+b") as file:  # and, unless it is read-only, in the file
            file.seek(int(self.offsets[row]))
            file.write(kept.data)
        report(f"{self.file} is damaged at the image {source}: it was decoded again from that file.")

    def _stored(self, row: int) -> Pixels:
        start = int(self.offsets[row])
        return self.pixels[start : start + int(self.lengths[row])]


def open_cache(folder: Path, files: Sequence[Path]) -> CachedImages:
    """The finished cache of files; `Damaged` where its index or its length is not what was written."""
    index, file = read_arrays(folder / INDEX), folder / IMAGES
    lengths = index["lengths"]
    total = int(lengths.sum())
    if (found := os.stat(file).st_size) != total:
        raise Damaged(f"Expected {total:,} bytes in {file}. Found {found:,}.")
    # mode "c": pages are shared with other processes until written to, as a repair does; torch wants writable arrays.
    # An empty file cannot be mapped.
    mapped = np.memmap(file, dtype=np.uint8, mode="c", shape=(total,)) if total else np.empty(0, np.uint8)
    return CachedImages(
        key=folder.name,
        pixels=np.asarray(mapped),
        offsets=np.cumsum(lengths) - lengths,
        heights=index["heights"],
        widths=index["widths"],
        lengths=lengths,
        checksums=index["checksums"],
        changes=index["changes"],
        recipe=Recipe(
            int(index["image_size"]),
            str(index["background"]),
            "jpeg" if str(index["encoding"]) == "jpeg" else "pixels",
        ),
        file=file,
        sources=files,
    )


def checksum(data: bytes | memoryview) -> int:
    """CRC-32."""
    # on the one processor tried, CRC-32 did 2.0 GB/s, SHA-1 and SHA-256 1.4, BLAKE2b 0.5
    return zlib.crc32(data)


def report(sentence: str) -> None:
    """Print what was found and done about a cache."""
    print(f"note: {sentence}", file=sys.stderr)
