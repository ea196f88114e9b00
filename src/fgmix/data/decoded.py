"""The decoded cache: every image of a dataset decoded once into one memory-mapped file, reused ever after.

An image is reduced so that its shorter side is at most ⌈S/√0.7⌉ for networks that see S×S: the augmentation crops down
to 0.7 of the area, so a square crop still has S pixels a side. Images are never enlarged and keep their aspect. They
are kept as rows of RGB pixels (h, w, 3); or, where those would exceed FGMIX_DECODED_GB (80 % of the memory if it is not
set), as JPEGs of the same size, quality 95 without chroma subsampling, which are decoded whenever they are read.

Where: `cache_dir()/decoded/<key>/`, with `images.bin` and `index.npz`, which holds sizes and checksums; a height of 0
marks a file that cannot be decoded. The key is a digest of the files' contents in order, S, the background of
transparent images, and the format: a folder that moved keeps its cache, a changed file gets another one. The folder may
be deleted at any time.

Damage is found before it is used: the index as a whole when it is opened, an image when a process first reads it. An
image is then decoded again from its file; a cache without a sound index is built again.
"""

from __future__ import annotations

import io
import os
import secrets
import shutil
import socket
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import ceil, sqrt
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from fgmix.data._arrays_file import Arrays, read_arrays, write_arrays
from fgmix.data._dataset import Indices, fingerprint_of
from fgmix.data._memory import total_memory
from fgmix.data._registry import cache_dir
from fgmix.data._threads import in_threads
from fgmix.data.contents import contents_of
from fgmix.data.images import BACKGROUND, Change, Unreadable, colour_of, quiet_decoding, size_of, try_decode
from fgmix.errors import MachineError, UserError, bad_value, readable_size
from fgmix.progress import Progress
from fgmix.seals import Damaged

Pixels = npt.NDArray[np.uint8]
Encoding = Literal["pixels", "jpeg"]

IMAGES, INDEX = "images.bin", "index.npz"  # a cache's files
FORMAT = "rgb rows, lanczos, 2"  # part of the key: change it with anything that changes the stored bytes
SMALLEST_CROP = 0.7  # part of the area that the augmentation keeps at least
IMAGE_SIZE = 224
LARGEST = 4096  # side in pixels: a batch of 32 such images takes 6 GB
QUALITY = 95  # off by 0.4 grey levels on average at 224 px, by 1.2 at 64 px, on every 50th image of PACS
JPEG_SHARE = 0.25  # bytes of such a JPEG against its pixels': 0.12 at 224 px, 0.24 at 64 px, on the same images
MEMORY_SHARE = 0.8
SAMPLED = 64  # files whose headers tell how large the whole will be
ABANDONED = 3600  # seconds after which a half-built cache of another machine, whose locks we may not see, is deleted
GB = 1_000_000_000


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

    def keep(self, path: Path) -> _Kept | Unreadable:
        """An image file as the cache keeps it. Call it inside `quiet_decoding`."""
        picture = try_decode(path, self.background)
        if isinstance(picture, Unreadable):
            return picture
        image = _reduced(picture.image, self.image_size)
        return _Kept(image.tobytes() if self.encoding == "pixels" else _as_jpeg(image), image.size, picture.changes)


@dataclass(frozen=True)
class _Kept:
    """The bytes of one image, its (width, height), and what decoding changed."""

    data: bytes
    size: tuple[int, int]
    changes: Change


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
        return int(self.checksums[row]) == _checksum(self._stored(row).data)

    def repair(self, row: int) -> None:
        """Decode an image again from its file; UserError, and no cache any more, if that gives something else."""
        source = self.sources[row]
        with quiet_decoding():
            kept = self.recipe.keep(source)
        if isinstance(kept, Unreadable) or _checksum(kept.data) != int(self.checksums[row]):
            shutil.rmtree(self.file.parent, ignore_errors=True)
            raise UserError(
                f"Expected {source} decoded in {self.file}. Found damaged bytes, and {source} is no longer the same. "
                f"{self.file.parent} is deleted. Run the same command again: it is rebuilt."
            )
        self._stored(row)[:] = np.frombuffer(kept.data, np.uint8)  # in this process's copy of the page
        with suppress(OSError), open(self.file, "r+b") as file:  # and, unless it is read-only, in the file
            file.seek(int(self.offsets[row]))
            file.write(kept.data)
        _report(f"{self.file} is damaged at the image {source}: it was decoded again from that file.")

    def _stored(self, row: int) -> Pixels:
        start = int(self.offsets[row])
        return self.pixels[start : start + int(self.lengths[row])]


def decoded_images(
    files: Sequence[Path],
    image_size: int,
    *,
    background: str = BACKGROUND,
    skip_unreadable: bool = False,
    cache: Path | None = None,
    contents: str | None = None,
    progress: bool = True,
) -> CachedImages:
    """The decoded images of `files`, from the cache, which is built where it is missing or damaged.

    Several processes may call this at once: the first builds, the others wait and reuse. A build that is killed leaves
    nothing that a later one could mistake for a finished one.

    Args:
        files: image files; row i of the result is files[i].
        image_size: S, the side of the square that a network will see.
        background: colour under transparent pixels.
        skip_unreadable: give files that cannot be decoded a height of 0 instead of stopping at the first.
        cache: folder of the cache; else `cache_dir()`.
        contents: what `contents_of` says about the files, where it is known.
        progress: show a bar.
    """
    cache = cache or cache_dir()
    contents = contents or contents_of(files, cache=cache, progress=progress)
    images = cached_images(
        files, image_size, contents, background=background, skip_unreadable=skip_unreadable, cache=cache
    )
    if images is not None:
        return images
    recipe = _recipe(files, image_size, colour_of(background), cache, contents)
    folder = cache / "decoded" / recipe.key(contents)
    with _writable(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _turn(folder.with_suffix(".lock"), show=progress):
            images = _opened(folder, files, quiet=True)  # another process may have built it meanwhile
            if images is None:
                _build(files, recipe, contents, folder, skip_unreadable=skip_unreadable, progress=progress)
                images = _open(folder, files)
    return _require_readable(images, skip_unreadable)


def cached_images(
    files: Sequence[Path],
    image_size: int,
    contents: str,
    *,
    background: str = BACKGROUND,
    skip_unreadable: bool = False,
    cache: Path | None = None,
) -> CachedImages | None:
    """As `decoded_images` for files of known contents, without looking at one; None where the cache lacks them."""
    cache = cache or cache_dir()
    recipe = _recipe(files, image_size, colour_of(background), cache, contents)
    images = _opened(cache / "decoded" / recipe.key(contents), files)
    return None if images is None else _require_readable(images, skip_unreadable)


def checked_size(image_size: int | None) -> int:
    """The side of the square that a network sees."""
    if image_size is None:
        return IMAGE_SIZE
    if isinstance(image_size, bool) or not isinstance(image_size, int | np.integer) or not 1 <= image_size <= LARGEST:
        raise bad_value("image_size", f"a number of pixels from 1 to {LARGEST}", image_size)
    return int(image_size)


def caches_of(contents: str, files: Sequence[Path], cache: Path | None = None) -> Iterator[CachedImages]:
    """All caches of these files, of whatever image size; those whose index is damaged do not tell whose they are."""
    for folder in sorted((cache or cache_dir()).glob("decoded/*")):
        with suppress(OSError, Damaged):
            if str(read_arrays(folder / INDEX)["contents"]) == contents:
                yield _open(folder, files)


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


def _checksum(data: bytes | memoryview) -> int:
    # on the one processor tried, CRC-32 did 2.0 GB/s, SHA-1 and SHA-256 1.4, BLAKE2b 0.5
    return zlib.crc32(data)


# Pixels or JPEGs


def _recipe(files: Sequence[Path], image_size: int, background: str, cache: Path, contents: str) -> Recipe:
    """Pixels unless they would not fit; without a limit of the user's, whichever is already there."""
    pixels, jpeg = Recipe(image_size, background, "pixels"), Recipe(image_size, background, "jpeg")
    limit = _limit()
    if limit is None:
        for recipe in (pixels, jpeg):
            if os.path.isdir(cache / "decoded" / recipe.key(contents)):
                return recipe
        limit = MEMORY_SHARE * (total_memory() or sys.maxsize)
    return pixels if _estimated(files, pixels) <= limit else jpeg


def _limit() -> float | None:
    """Bytes of decoded pixels that the user allows."""
    text = os.environ.get("FGMIX_DECODED_GB")
    if not text:
        return None
    try:
        limit = float(text) * GB
    except ValueError:
        limit = -1
    if not limit >= 0:
        raise bad_value("FGMIX_DECODED_GB", "a number of gigabytes", text)
    return limit


def _estimated(files: Sequence[Path], recipe: Recipe) -> float:
    """Bytes that the cache will take; a sample of headers tells well enough."""
    with quiet_decoding():
        sizes = [size_of(path) for path in files[:: max(1, len(files) // SAMPLED)]]
    areas = [np.prod(stored_size(*size, recipe.image_size)) for size in sizes if size is not None and min(size) > 0]
    share = 1.0 if recipe.encoding == "pixels" else JPEG_SHARE
    return len(files) * 3 * share * float(np.mean(areas)) if areas else 0.0


# Building


def _build(
    files: Sequence[Path], recipe: Recipe, contents: str, folder: Path, *, skip_unreadable: bool, progress: bool
) -> None:
    """Decode into a folder beside `folder`, then move it there in one step. Call it under the lock."""
    _remove_abandoned(folder)
    temporary = folder.with_suffix(f".{_host()}.{secrets.token_hex(8)}.tmp")
    temporary.mkdir()
    try:
        _require_space(files, recipe, temporary)
        with quiet_decoding():
            index = _write_images(files, recipe, temporary / IMAGES, skip_unreadable, progress)
        about = {
            "contents": np.array(contents),
            "image_size": np.array(recipe.image_size),
            "background": np.array(recipe.background),
            "encoding": np.array(recipe.encoding),
        }
        write_arrays(temporary / INDEX, {**index, **about})
        shutil.rmtree(folder, ignore_errors=True)  # a damaged one
        try:
            os.rename(temporary, folder)
        except OSError:
            if not os.path.isdir(folder):  # else another machine, whose locks we do not see, was quicker
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_images(files: Sequence[Path], recipe: Recipe, path: Path, skip_unreadable: bool, progress: bool) -> Arrays:
    """Append every image to `path`; what the index should say about them."""
    n = len(files)
    lengths, heights, widths = np.zeros((3, n), dtype=np.int64)
    checksums, changes = np.zeros(n, np.uint32), np.zeros(n, np.uint8)
    # written, not mapped: a full disk then raises an error, where a mapped page would end the process
    with open(path, "xb") as out, Progress("decode images", n, show=progress) as bar:
        for row, kept in enumerate(in_threads(recipe.keep, files)):
            if not isinstance(kept, Unreadable):
                out.write(kept.data)
                lengths[row], (widths[row], heights[row]), changes[row] = len(kept.data), kept.size, kept.changes
                checksums[row] = _checksum(kept.data)
            elif not skip_unreadable:
                raise _cannot_decode(files[row], kept.reason)
            bar.advance()
        out.flush()
        os.fsync(out.fileno())  # else a power cut could leave the finished folder without its content
    return {"lengths": lengths, "heights": heights, "widths": widths, "checksums": checksums, "changes": changes}


def _remove_abandoned(folder: Path) -> None:
    """Delete what killed builds left: at once those of this machine, whose lock we hold; others when they are old."""
    for left in folder.parent.glob(f"{folder.name}.*.tmp"):
        ours = left.name.startswith(f"{folder.name}.{_host()}.")
        with suppress(OSError):
            touched = max(os.stat(path).st_mtime for path in (left, *left.iterdir()))
            if ours or touched < time.time() - ABANDONED:
                shutil.rmtree(left, ignore_errors=True)


def _host() -> str:
    return socket.gethostname().replace(".", "_")


def _require_space(files: Sequence[Path], recipe: Recipe, folder: Path) -> None:
    """Stop before decoding for an hour towards a full disk."""
    needed, free = _estimated(files, recipe), shutil.disk_usage(folder).free
    if needed > free:
        raise MachineError(
            f"Expected about {readable_size(needed)} for decoded images under {folder.parent}. Found "
            f"{readable_size(free)} free. Set FGMIX_CACHE to a folder with more space, or use a smaller image size."
        )


# Opening


def _opened(folder: Path, files: Sequence[Path], *, quiet: bool = False) -> CachedImages | None:
    """The finished cache; None where there is none, or a damaged one, which is reported."""
    try:
        return _open(folder, files) if os.path.isdir(folder) else None
    except (Damaged, FileNotFoundError) as error:
        if not quiet:
            found = f"Expected {error.filename}. Found none." if isinstance(error, FileNotFoundError) else str(error)
            _report(f"{found} The images are decoded again.")
        return None
    except OSError as error:
        raise UserError(
            f"Expected to read decoded images in {folder}. It is not possible ({error.strerror}). Change its "
            "permissions, or set FGMIX_CACHE to another folder."
        ) from error


def _open(folder: Path, files: Sequence[Path]) -> CachedImages:
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


def _report(sentence: str) -> None:
    print(f"note: {sentence}", file=sys.stderr)


def _require_readable(images: CachedImages, skip_unreadable: bool) -> CachedImages:
    if not skip_unreadable and len(images.readable) < len(images):
        raise _cannot_decode(images.sources[int(np.flatnonzero(images.heights == 0)[0])], "found so before")
    return images


def _cannot_decode(path: Path, reason: str) -> UserError:
    return UserError(
        f"Expected an image at {path}. It cannot be decoded ({reason}). "
        "Replace or remove it, or pass --skip-unreadable to leave such files out."
    )


@contextmanager
def _turn(path: Path, *, show: bool) -> Iterator[None]:
    """Wait for a lock that dies with the process that holds it.

    Where the file system has no locks, or only shows them to its own machine, two may build at once: each in a folder
    of its own, of which the first to finish is kept.
    """
    from filelock import lock_descriptor

    with open(path, "a") as file:
        with suppress(OSError):
            if not lock_descriptor(file.fileno(), blocking=False):
                if show:
                    print("waiting for another process that decodes these images", file=sys.stderr)
                lock_descriptor(file.fileno())
        yield


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Turn a full or read-only disk into a sentence."""
    try:
        yield
    except OSError as error:
        raise MachineError(
            f"Expected to write decoded images under {folder}. It is not possible ({error.strerror or error}). "
            "Make room there, or set FGMIX_CACHE to a folder that can be written to."
        ) from error
