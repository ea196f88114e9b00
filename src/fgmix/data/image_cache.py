"""The cache of decoded images: every image of a dataset is decoded once into one memory-mapped file and then reused.

Images are reduced to the resolution that a network with S×S inputs needs (`images.reduce_image`) and stored as RGB
pixels (h, w, 3). If these would exceed FGMIX_DECODED_GB (80 % of the memory if it is not set), they are stored as JPEGs
of the same size, quality 95 without chroma subsampling, which are decoded on every access.

The cache is in `cache_dir()/decoded/<key>/`: `images.bin`, and `index.npz` with sizes and checksums, where a height of
0 marks a file that cannot be decoded. The key is a digest of the files' contents in order, S, the background of
transparent images, the window of deep grey ones, the encoding and the version of the format: a folder that is moved
keeps its cache, and a changed file leads to a new one. The folder may be deleted at any time. If an image was decoded
at a fraction of its size, which caches of earlier versions did not do, the fingerprint of the dataset says so.

A file is opened twice, for its digest and to be decoded. Later runs open none: `cache_dir()/contents` keeps the digest
of files whose sizes and time stamps are unchanged.

Damage is detected before use: the index is verified when it is opened, an image when a process first reads it. A cache
with a damaged index is rebuilt; one with a damaged image is deleted, and rebuilt by the next run.
"""

from __future__ import annotations

import io
import math
import os
import secrets
import shutil
import socket
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from PIL import Image

from fgmix.data.dataset import Indices, fingerprint_of
from fgmix.data.files import Arrays, StrPath, read_arrays, require_space, write_arrays
from fgmix.data.images import (
    MARGIN,
    Change,
    Inspected,
    Unreadable,
    check_size,
    inspect_file,
    parse_colour,
    quiet_decoding,
    reduce_image,
    stored_size,
    try_decode,
)
from fgmix.data.loading import in_order
from fgmix.data.registry import LoadOptions
from fgmix.errors import MachineError, UserError, bad_value
from fgmix.progress import Progress
from fgmix.records.digests import Damaged
from fgmix.records.files import at_once, cache_dir
from fgmix.terminal import print_notes

Encoding = Literal["pixels", "jpeg"]
Pixels = npt.NDArray[np.uint8]

FORMAT = "rgb rows, lanczos, 2"  # part of the key: change it with anything that changes the stored bytes
IMAGES, INDEX = "images.bin", "index.npz"  # files of a cache
QUALITY = 95  # mean error of 0.4 grey levels at 224 px and 1.2 at 64 px, on every 50th image of PACS
JPEG_SHARE = 0.25  # bytes of such a JPEG relative to its pixels: 0.12 at 224 px, 0.24 at 64 px, on the same images
SAMPLED = 64  # files whose headers are read to estimate the total size
MEMORY_SHARE = 0.8
GB = 1_000_000_000
READERS = min(32, (os.cpu_count() or 1) + 4)  # threads: more than cores, because reading waits for the disk
SETTLED_NS = 2 * 10**9  # the coarsest clock: after a more recent change, another one might leave the same time stamps
ABANDONED = 3600  # seconds after which an unfinished cache of another machine, whose locks may be invisible, is deleted


def decode_images(files: Sequence[StrPath], options: LoadOptions, contents: Contents | None = None) -> CachedImages:
    """Return the decoded images of `files` from the cache, which is built if it is missing or damaged.

    Several processes may call this at once: the first builds the cache, the others wait and use it. An interrupted
    build is never mistaken for a finished one. Files that cannot be decoded get a height of 0 with `skip_unreadable`,
    and are an error without it.
    """
    contents = contents or read_contents(files, options)
    decoding, folder = _choose_decoding(files, options, contents)
    images = _open_cache(folder, files, options)
    if images is not None:
        return images
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with wait_for_lock(folder.with_suffix(".lock"), show=options.progress):
            images = _open_cache(folder, files, options, quiet=True)  # of a process that built it meanwhile
            if images is None:
                _write_cache(folder, files, decoding, options, contents)
                images = CachedImages.open(folder)
        return images
    except OSError as error:
        what = f"Expected to write decoded images to {folder.parent}. It failed ({error.strerror or error})."
        raise MachineError(f"{what} Make room there, or set FGMIX_CACHE to another folder.") from error


# What is known of the files before they are decoded


@dataclass(frozen=True)
class Contents:
    """The contents of image files."""

    digest: str  # of the contents of all files, in order; their names do not matter
    sizes: tuple[tuple[int, int], ...]  # (width, height) in the headers of a sample, without those that cannot be read
    may_be_deep: bool = True  # whether some may have grey values of more than 8 bits; True if that is not known


def remember(files: Sequence[StrPath], folder: Path, compute: Callable[[], Arrays]) -> Arrays:
    """Return what was computed from files before, while their paths, sizes and time stamps are the same.

    Of the time stamps, the change time differs even if a copy keeps size and modification time.

    Args:
        files: their order matters.
        folder: where results are kept.
        compute: computes the result if there is none.
    """
    settled = time.time_ns() - SETTLED_NS
    stamps = []
    for path in files:
        try:
            stat = os.stat(path)
            stamps.append((stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
        except OSError:
            stamps.append((-1, 0, 0))
    name = fingerprint_of(f"{os.path.abspath(path)} {stamp}" for path, stamp in zip(files, stamps))
    memo = folder / f"{name}.npz"
    with suppress(OSError, Damaged):
        return read_arrays(memo)
    result = compute()
    if all(changed < settled for _, _, changed in stamps):
        with suppress(OSError, UserError):  # optional: a read-only cache that is complete can be used without it
            memo.parent.mkdir(parents=True, exist_ok=True)
            write_arrays(memo, result)
    return result


def read_contents(files: Sequence[StrPath], options: LoadOptions) -> Contents:
    """Read every file once, unless it was read before.

    Reading the 118 MB of PACS takes 0.3 s from memory and 2 s from disk, and DomainNet is 150 times larger.
    """
    folder = (options.cache or cache_dir()) / "contents"
    known = remember(files, folder, lambda: _inspect_files(files, options))
    sizes = tuple((w, h) for w, h in known["sizes"].tolist())
    return Contents(str(known["contents"]), sizes, bool(known.get("may_be_deep", True)))


def _inspect_files(files: Sequence[StrPath], options: LoadOptions) -> Arrays:
    step = max(1, len(files) // SAMPLED)
    found: list[Inspected] = []
    with quiet_decoding(), Progress("read images", len(files), "files", show=options.progress) as bar:
        for each in in_order(lambda row: inspect_file(files[row], row % step == 0), range(len(files)), READERS):
            found.append(each)
            bar.advance()
    return {
        "contents": np.array(fingerprint_of(each.digest for each in found)),
        "sizes": np.array([each.size for each in found if each.size is not None]).reshape(-1, 2),
        "may_be_deep": np.array(any(each.may_be_deep for each in found)),
    }


# How an image is stored


@dataclass(frozen=True)
class Decoding:
    """How image files are stored in the cache."""

    image_size: int  # S, the side of the square input images
    background: str  # colour behind transparent pixels, #rrggbb
    encoding: Encoding
    window: str = ""  # of grey values of more than 8 bits

    def encode(self, path: StrPath) -> StoredImage | Unreadable:
        """Decode an image file and encode it as for the cache. Call it inside `quiet_decoding`."""
        picture = try_decode(path, self.background, self.window, self.image_size)
        if isinstance(picture, Unreadable):
            return picture
        image = reduce_image(picture.image, self.image_size)
        if self.encoding == "pixels":
            return StoredImage(image.tobytes(), image.size, picture.changes)
        jpeg = io.BytesIO()
        image.save(jpeg, "JPEG", quality=QUALITY, subsampling=0)
        return StoredImage(jpeg.getvalue(), image.size, picture.changes)

    def estimate_bytes(self, n: int, contents: Contents) -> float:
        """Estimate the size in bytes of the cache of n files from the sizes of a sample."""
        areas = [np.prod(stored_size(*size, self.image_size)) for size in contents.sizes if min(size) > 0]
        share = 1.0 if self.encoding == "pixels" else JPEG_SHARE
        return n * 3 * share * float(np.mean(areas)) if areas else 0.0


@dataclass(frozen=True)
class StoredImage:
    """The bytes of one image in the cache, its (width, height), and what decoding changed."""

    data: bytes
    size: tuple[int, int]
    changes: Change


def _choose_decoding(files: Sequence[StrPath], options: LoadOptions, contents: Contents) -> tuple[Decoding, Path]:
    """Choose how files are stored, and name the folder of their cache.

    Pixels are chosen unless they exceed FGMIX_DECODED_GB, else JPEGs. Without that limit an existing cache of either is
    used, and pixels may take most of the memory.
    """
    size, colour = check_size(options.file_size), parse_colour(options.background)
    window = [options.window] if options.window else []  # so that keys of other images do not change
    choices = []
    for encoding in get_args(Encoding):
        key = fingerprint_of([FORMAT, f"S={size}", colour, encoding, contents.digest, *window])
        decoding = Decoding(size, colour, encoding, options.window)
        choices.append((decoding, (options.cache or cache_dir()) / "decoded" / key))
    if given := os.environ.get("FGMIX_DECODED_GB"):
        limit = math.nan
        with suppress(ValueError):
            limit = GB * float(given)
        if not limit >= 0:
            raise bad_value("FGMIX_DECODED_GB", "a number of gigabytes", given)
    else:
        for decoding, folder in choices:
            if os.path.isdir(folder):
                return decoding, folder
        limit = math.inf
        with suppress(ValueError, OSError, AttributeError):  # the size of the memory is unknown
            limit = MEMORY_SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    pixels, jpeg = choices
    return pixels if pixels[0].estimate_bytes(len(files), contents) <= limit else jpeg


# The images


class _OpenFile:
    """A file that is open for reading as long as something refers to it."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


@dataclass(frozen=True)
class CachedImages:
    """Images of different sizes in the file of the cache; each is verified on first access."""

    key: str  # digest of the files and of how they were decoded: the folder's, unless fractions of images were decoded
    pixels: Pixels  # the bytes of all images, mapped
    offsets: Indices  # start of each image in `pixels`
    lengths: Indices  # number of bytes of each image
    heights: Indices  # 0 for a file that cannot be decoded
    widths: Indices
    readable: Indices  # rows of the images that could be decoded
    checksums: npt.NDArray[np.uint32]  # CRC-32 (2.0 GB/s; SHA-1 and SHA-256 1.4, BLAKE2b 0.5) of these bytes
    changes: npt.NDArray[np.uint8]  # `Change` flags of each image
    decoding: Decoding
    file: Path  # of the cache
    opened: _OpenFile = field(repr=False)
    verified: npt.NDArray[np.bool_] = field(repr=False)  # images that this process has verified

    @classmethod
    def open(cls, folder: Path) -> CachedImages:
        """Open the finished cache of files; `Damaged` if its index or its length is not as written."""
        index, file = read_arrays(folder / INDEX), folder / IMAGES
        lengths = index["lengths"]
        total = int(lengths.sum())
        if (size := os.stat(file).st_size) != total:
            raise Damaged(f"Expected {total:,} bytes in {file}. Found {size:,}.")
        # mode "c", because torch requires writable arrays; an empty file cannot be mapped
        mapped = np.memmap(file, dtype=np.uint8, mode="c", shape=(total,)) if total else np.empty(0, np.uint8)
        encoding: Encoding = "jpeg" if str(index["encoding"]) == "jpeg" else "pixels"
        has_fractions = bool((index["changes"] & Change.FRACTION).any())
        return cls(
            key=fingerprint_of([folder.name, f"fractions {MARGIN}"]) if has_fractions else folder.name,
            pixels=np.asarray(mapped),
            offsets=np.cumsum(lengths) - lengths,
            **{name: index[name] for name in ("lengths", "heights", "widths", "checksums", "changes")},
            readable=np.flatnonzero(index["heights"]),
            decoding=Decoding(
                int(index["image_size"]), str(index["background"]), encoding, str(index.get("window", ""))
            ),
            file=file,
            opened=_OpenFile(file),
            verified=np.zeros(len(lengths), dtype=np.bool_),
        )

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, row: int) -> Pixels:
        """Return the image (h, w, 3)."""
        if not self.verified[row]:
            if not self.is_sound(row):
                raise self.delete()
            self.verified[row] = True
        data = self._read(row)
        if self.decoding.encoding == "pixels":
            return data.reshape(int(self.heights[row]), int(self.widths[row]), 3)
        with Image.open(io.BytesIO(data.data), formats=("JPEG",)) as image:
            return np.array(image)

    def is_sound(self, row: int) -> bool:
        """Say whether the bytes of an image are those that were written."""
        return int(self.checksums[row]) == zlib.crc32(self._read(row).data)

    def delete(self) -> MachineError:
        """Delete the cache, and return the error for a damaged one."""
        shutil.rmtree(self.file.parent, ignore_errors=True)
        return MachineError(
            f"Expected the images that were decoded into {self.file}. Found other bytes: it is damaged. "
            f"{self.file.parent} is deleted. Run the same command again: it is rebuilt, and the run resumes."
        )

    def _read(self, row: int) -> Pixels:
        """Read the bytes of an image; a part of them if the file has become shorter.

        From the file and not from `pixels`: pages that were read stay in the memory of a process that maps them.
        """
        data = np.empty(int(self.lengths[row]), np.uint8)
        length = os.preadv(self.opened.descriptor, [data.data], int(self.offsets[row])) if len(data) else 0
        return data[:length]


# The folder of a cache


def _open_cache(
    folder: Path, files: Sequence[StrPath], options: LoadOptions, *, quiet: bool = False
) -> CachedImages | None:
    """Open a finished cache; None if it is missing or damaged. Damage is reported unless `quiet`."""
    try:
        images = CachedImages.open(folder)
    except (Damaged, FileNotFoundError) as error:
        reason = f"Expected {error.filename}. Found none." if isinstance(error, FileNotFoundError) else str(error)
        if os.path.isdir(folder) and not quiet:
            print_notes(f"{reason} The images are decoded again.")
        return None
    except OSError as error:
        what = f"Expected to read decoded images in {folder}. It failed ({error.strerror})."
        raise UserError(f"{what} Change its permissions, or set FGMIX_CACHE to another folder.") from error
    if not options.skip_unreadable and not images.heights.all():
        raise _cannot_decode(files[int(images.heights.argmin())], "it failed in an earlier run")
    return images


def _write_cache(
    folder: Path, files: Sequence[StrPath], decoding: Decoding, options: LoadOptions, contents: Contents
) -> None:
    """Decode into a temporary folder, which is renamed when it is complete. The caller holds the lock."""
    own = f"{folder.name}.{socket.gethostname().replace('.', '_')}."  # begins the names of this machine's folders
    for left in folder.parent.glob(f"{folder.name}.*.tmp"):  # of interrupted builds, if old or of this machine
        with suppress(OSError):
            touched = max(os.stat(path).st_mtime for path in (left, *left.iterdir()))
            if left.name.startswith(own) or touched < time.time() - ABANDONED:
                shutil.rmtree(left, ignore_errors=True)
    temporary = folder.with_name(f"{own}{secrets.token_hex(8)}.tmp")
    temporary.mkdir()
    try:
        needed = decoding.estimate_bytes(len(files), contents)
        require_space(folder.parent, needed, "decoded images", "set FGMIX_CACHE to a folder with more")
        with quiet_decoding():
            index = _write_images(temporary / IMAGES, files, decoding, options)
        about = {"contents": contents.digest, **asdict(decoding)}
        write_arrays(temporary / INDEX, {**index, **{key: np.array(value) for key, value in about.items()}})
        shutil.rmtree(folder, ignore_errors=True)  # if it exists, it is damaged
        try:
            os.rename(temporary, folder)
        except OSError:
            if not os.path.isdir(folder):  # else another machine, whose locks are invisible here, was faster
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_images(path: Path, files: Sequence[StrPath], decoding: Decoding, options: LoadOptions) -> Arrays:
    """Decode every file and append it to `path`; return the arrays of the index."""
    n = len(files)
    lengths, heights, widths = np.zeros((3, n), dtype=np.int64)
    checksums, changes = np.zeros(n, np.uint32), np.zeros(n, np.uint8)
    # written, not mapped: a full disk then raises an error instead of killing the process
    with open(path, "xb") as out, Progress("decode images", n, "images", show=options.progress) as bar:
        for row, image in enumerate(in_order(decoding.encode, files, READERS)):
            if not isinstance(image, Unreadable):
                out.write(image.data)
                lengths[row], (widths[row], heights[row]), changes[row] = len(image.data), image.size, image.changes
                checksums[row] = zlib.crc32(image.data)
            elif not options.skip_unreadable:
                raise _cannot_decode(files[row], image.reason)
            bar.advance()
        out.flush()
        os.fsync(out.fileno())  # else a power failure could leave a finished folder without its content
    return {"lengths": lengths, "heights": heights, "widths": widths, "checksums": checksums, "changes": changes}


def _cannot_decode(path: StrPath, reason: str) -> UserError:
    what = f"Expected an image at {path}. It cannot be decoded ({reason})."
    return UserError(f"{what} Replace or remove it, or pass --skip-unreadable to leave such files out.")


@contextmanager
def wait_for_lock(path: Path, *, show: bool, wait: bool = True) -> Iterator[bool]:
    """Wait for a lock, which is released when the process that holds it ends; without `wait`, say whether it was free.

    If the file system has no locks, or none across machines, two processes may build at once, each in its own folder;
    the first to finish is kept.
    """
    from filelock import lock_descriptor

    with open(path, "a", opener=at_once) as file:
        free = True
        with suppress(OSError):
            free = lock_descriptor(file.fileno(), blocking=False)
            if wait and not free:
                if show:
                    print("waiting for another process that prepares these images", file=sys.stderr)
                free = lock_descriptor(file.fileno())
        yield free
