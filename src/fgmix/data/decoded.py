"""The decoded cache: every image of a dataset decoded once into one memory-mapped file of uint8, reused ever after.

An image is stored as rows of RGB pixels (h, w, 3), reduced so that its shorter side is at most ⌈S/√0.7⌉ for networks
that see S×S: the augmentation crops down to 0.7 of the area, so a square crop still has S pixels a side. Images are
never enlarged, keep their aspect, and are not turned by their EXIF tag: ImageFolder's loader does not turn them either.

Where: `cache_dir()/decoded/<key>/`, with `pixels.bin` and `index.npz` (offsets, heights, widths; a height of 0 marks a
file that cannot be decoded). The key is a digest of the files' contents in order, S, and the format: a folder that
moved keeps its cache, a changed file gets another one. The folder may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import ceil, sqrt
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from fgmix.data._dataset import Indices, fingerprint_of
from fgmix.data._registry import cache_dir
from fgmix.errors import UserError
from fgmix.files import write_atomically
from fgmix.progress import Progress

Pixels = npt.NDArray[np.uint8]

FORMAT = "rgb rows, lanczos, 1"  # part of the key: change it with anything that changes the stored bytes
SMALLEST_CROP = 0.7  # part of the area that the augmentation keeps at least
WINDOW = 256  # images decoded ahead of the writer: a bound on memory
SETTLED_NS = 2 * 10**9  # a file changed longer ago than the clock's coarsest tick shows its next change in its times


@dataclass(frozen=True)
class DecodedImages:
    """Images of different sizes, one after the other in one array.

    Args:
        key: digest of what they were made from.
        pixels: all bytes, memory-mapped.
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
        """The image (h, w, 3), a view."""
        start, h, w = int(self.offsets[row]), int(self.heights[row]), int(self.widths[row])
        return self.pixels[start : start + h * w * 3].reshape(h, w, 3)

    @property
    def readable(self) -> Indices:
        """Rows that hold an image."""
        return np.flatnonzero(self.heights)


@dataclass(frozen=True)
class Unreadable:
    """Why a file could not be decoded."""

    reason: str


def decoded_images(
    files: Sequence[Path], image_size: int, *, skip_unreadable: bool = False, progress: bool = True
) -> DecodedImages:
    """The decoded images of `files`, from the cache, which is built where it is missing.

    Several processes may call this at once: the first builds, the others wait and reuse. A build that is killed leaves
    nothing that a later one could mistake for a finished one.

    Args:
        files: image files; row i of the result is files[i].
        image_size: S, the side of the square that a network will see.
        skip_unreadable: give files that cannot be decoded a height of 0 instead of stopping at the first.
        progress: show a bar.
    """
    key = fingerprint_of([FORMAT, f"S={image_size}", contents_of(files, progress=progress)])
    folder = cache_dir() / "decoded" / key
    if not folder.is_dir():
        with _writable(folder.parent):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with _turn(folder.with_suffix(".lock"), show=progress):
                if not folder.is_dir():  # else another process has built it meanwhile
                    _build(files, image_size, folder, skip_unreadable=skip_unreadable, progress=progress)
    images = _open(folder, key)
    if not skip_unreadable and len(images.readable) < len(images):
        raise _cannot_decode(files[int(np.flatnonzero(images.heights == 0)[0])], "found so before")
    return images


def decode(path: Path) -> Image.Image:
    """An image file as RGB, the way ImageFolder's loader reads it.

    But for images of more than 8 bits a channel (modes I, I;16, F), whose values Pillow would clip at 255: a scan of
    12 bits would come out white without a word.
    """
    with Image.open(path) as image:
        if image.mode[0] in "IF":
            raise ValueError(f"more than 8 bits a channel (mode {image.mode}); save it with 8, in the window you need")
        return image.convert("RGB")


def try_decode(path: Path) -> Image.Image | Unreadable:
    """As `decode`, or why it does not work. Call it inside `quiet_decoding`."""
    try:
        return decode(path)
    except MemoryError:  # not the file's fault: it must not be skipped
        raise
    except Exception as error:  # Pillow's plugins let anything escape from a broken file: struct.error, SyntaxError, …
        return Unreadable(f"{type(error).__name__}: {error}".replace(str(path), "it"))


@contextmanager
def quiet_decoding() -> Iterator[None]:
    """Within it, Pillow's warning about a decompression bomb is an error and its chatter about metadata is silent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def stored_size(width: int, height: int, image_size: int) -> tuple[int, int]:
    """(width, height) under which an image is kept.

    >>> stored_size(640, 480, 224), stored_size(227, 227, 224)
    ((357, 268), (227, 227))
    """
    shorter = ceil(image_size / sqrt(SMALLEST_CROP))
    scale = shorter / min(width, height)
    return (round(width * scale), round(height * scale)) if scale < 1 else (width, height)


def contents_of(files: Sequence[Path], *, progress: bool = True) -> str:
    """A digest of the contents of files, in order; their names do not matter.

    Reading the 118 MB of PACS takes 0.3 s from memory and 2 s from disk, and DomainNet is 150 times larger: the digest
    is remembered under the files' paths, sizes and times, so that only the first start reads them.
    """
    stamps = [_stamp(path) for path in files]
    memo = cache_dir() / "contents" / fingerprint_of(f"{os.path.abspath(p)} {s}" for p, s in zip(files, stamps))
    with suppress(OSError):
        return memo.read_text()
    settled = time.time_ns() - SETTLED_NS
    with Progress("read images", len(files), show=progress) as bar:
        digests = []
        for path in files:
            digests.append(digest_of(path))
            bar.advance()
    contents = fingerprint_of(digests)
    if all(changed < settled for _, _, changed in stamps):
        with suppress(OSError):  # only a shortcut: a read-only cache that is complete serves without it
            memo.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(memo, lambda file: file.write(contents.encode()))
    return contents


def digest_of(path: Path) -> bytes:
    """A digest of a file's content; a file that cannot be opened has its own (decoding will name it)."""
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=16).digest()
    except OSError:
        return b"unreadable"


def _stamp(path: Path) -> tuple[int, int, int]:
    """Size, modification and change time: they tell without reading a file that it is as it was.

    The change time (in ns, last) moves even where a copy keeps size and modification time.
    """
    try:
        stat = os.stat(path)
    except OSError:
        return -1, 0, 0
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _build(files: Sequence[Path], image_size: int, folder: Path, *, skip_unreadable: bool, progress: bool) -> None:
    """Decode into a folder beside `folder`, then move it there in one step. Call it under the lock."""
    temporary = folder.with_suffix(".tmp")
    shutil.rmtree(temporary, ignore_errors=True)  # left by a build that was killed
    temporary.mkdir()
    try:
        with quiet_decoding():
            _require_space(files, image_size, temporary)
            sizes = _write_pixels(files, image_size, temporary / "pixels.bin", skip_unreadable, progress)
        widths, heights = sizes.T
        offsets = np.concatenate([[0], np.cumsum(widths * heights * 3)[:-1]])
        index = {"offsets": offsets, "heights": heights, "widths": widths}
        write_atomically(temporary / "index.npz", lambda file: np.savez(file, **index))
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_pixels(files: Sequence[Path], image_size: int, path: Path, skip_unreadable: bool, progress: bool) -> Indices:
    """Append every image to `path`; (n, 2) widths and heights, 0 where a file cannot be decoded."""
    sizes = np.zeros((len(files), 2), dtype=np.int64)
    # written, not mapped: a full disk then raises an error, where a mapped page would end the process
    with open(path, "wb") as out, Progress("decode images", len(files), show=progress) as bar:
        for row, image in enumerate(_decode_in_threads(files, image_size)):
            if isinstance(image, Unreadable):
                if not skip_unreadable:
                    raise _cannot_decode(files[row], image.reason)
            else:
                out.write(image.tobytes())
                sizes[row] = image.size
            bar.advance()
        out.flush()
        os.fsync(out.fileno())  # else a power cut could leave the finished folder without its content
    return sizes


def _decode_in_threads(files: Sequence[Path], image_size: int) -> Iterator[Image.Image | Unreadable]:
    """The reduced images in order. Threads suffice: Pillow decodes and resizes without holding the interpreter."""

    with ThreadPoolExecutor() as pool:
        for start in range(0, len(files), WINDOW):
            yield from pool.map(lambda path: reduced(path, image_size), files[start : start + WINDOW])


def reduced(path: Path, image_size: int) -> Image.Image | Unreadable:
    """An image file as the cache keeps it, or why it cannot be decoded. Call it inside `quiet_decoding`."""
    image = try_decode(path)
    if isinstance(image, Unreadable):
        return image
    size = stored_size(*image.size, image_size)
    # Lanczos, because a bilinear resize follows: against resizing once, the pair is off by 0.65 grey levels on
    # photos at 224 px; bilinear twice by 1.0
    return image if size == image.size else image.resize(size, Image.Resampling.LANCZOS)


def _require_space(files: Sequence[Path], image_size: int, folder: Path) -> None:
    """Stop before decoding for an hour towards a full disk; a sample of headers tells the size well enough."""
    sample = []
    for path in files[:: max(1, len(files) // 64)]:
        with suppress(Exception), Image.open(path) as image:  # unreadable files are dealt with when decoding
            w, h = stored_size(*image.size, image_size)
            sample.append(w * h * 3)
    if not sample:
        return
    needed, free = len(files) * sum(sample) / len(sample), shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"Decoding needs about {needed / 1e9:.1f} GB under {folder.parent}. Found {free / 1e9:.1f} GB free. "
            "Set FGMIX_CACHE to a folder with more room, or take a smaller image size."
        )


def _open(folder: Path, key: str) -> DecodedImages:
    with np.load(folder / "index.npz") as index:
        offsets, heights, widths = (index[name] for name in ("offsets", "heights", "widths"))
    total = int((heights * widths).sum()) * 3
    if total == 0:  # an empty file cannot be mapped
        return DecodedImages(key, np.empty(0, np.uint8), offsets, heights, widths)
    # mode "c": pages are shared with other processes until written to, which nobody does; torch wants writable arrays
    pixels = np.asarray(np.memmap(folder / "pixels.bin", dtype=np.uint8, mode="c", shape=(total,)))
    return DecodedImages(key, pixels, offsets, heights, widths)


def _cannot_decode(path: Path, reason: str) -> UserError:
    return UserError(
        f"Expected an image at {path}. It cannot be decoded ({reason}). "
        "Replace or remove it, or pass --skip-unreadable to leave such files out."
    )


@contextmanager
def _turn(path: Path, *, show: bool) -> Iterator[None]:
    """Wait for a lock that dies with the process that holds it."""
    import fcntl

    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if show:
                print("waiting for another run that is decoding these images", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Turn a full or read-only disk into a sentence."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"Expected to write decoded images under {folder}. It is not possible ({error.strerror or error}). "
            "Make room there, or set FGMIX_CACHE to a folder that can be written to."
        ) from error
