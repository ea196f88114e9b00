"""The decoded cache: every image of a dataset is decoded once into one memory-mapped file and then reused.

Images are reduced to the resolution that a network with S×S inputs needs (`data.recipe`) and stored as RGB pixels
(h, w, 3). If these would exceed FGMIX_DECODED_GB (80 % of the memory if it is not set), they are stored as JPEGs of the
same size, quality 95 without chroma subsampling, which are decoded on every access.

The cache is in `cache_dir()/decoded/<key>/`: `images.bin`, and `index.npz` with sizes and checksums, where a height of
0 marks a file that cannot be decoded. The key is a digest of the files' contents in order, S, the background of
transparent images, the encoding and the version of the format: a folder that is moved keeps its cache, and a changed
file leads to a new one. The folder may be deleted at any time.

Damage is detected before use: the index is verified when it is opened, an image when a process first reads it. A
damaged image is decoded again from its file; a cache with a damaged index is rebuilt.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from fgmix.data._arrays_file import read_arrays
from fgmix.data._memory import total_memory
from fgmix.data._registry import cache_dir
from fgmix.data.cached_images import INDEX, CachedImages, open_cache, report
from fgmix.data.contents import contents_of
from fgmix.data.decoding import build_cache, cannot_decode, turn, writable
from fgmix.data.images import BACKGROUND, colour_of
from fgmix.data.recipe import Recipe
from fgmix.errors import UserError, bad_value
from fgmix.records.digests import Damaged

MEMORY_SHARE = 0.8
GB = 1_000_000_000


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
    """The decoded images of `files`, from the cache, which is built if it is missing or damaged.

    Several processes may call this at once: the first builds the cache, the others wait and use it. An interrupted
    build is never mistaken for a finished one.

    Args:
        files: image files; row i of the result is files[i].
        image_size: S, the side of the square input images.
        background: colour behind transparent pixels.
        skip_unreadable: give files that cannot be decoded a height of 0 instead of raising an error.
        cache: folder of the cache; None for `cache_dir()`.
        contents: the result of `contents_of` for the files, if known.
        progress: show a progress bar.
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
    with writable(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with turn(folder.with_suffix(".lock"), show=progress):
            images = _opened(folder, files, quiet=True)  # another process may have built it meanwhile
            if images is None:
                build_cache(files, recipe, contents, folder, skip_unreadable=skip_unreadable, progress=progress)
                images = open_cache(folder, files)
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
    """As `decoded_images`, for files of known contents, from the cache only; None if they are not cached."""
    cache = cache or cache_dir()
    recipe = _recipe(files, image_size, colour_of(background), cache, contents)
    images = _opened(cache / "decoded" / recipe.key(contents), files)
    return None if images is None else _require_readable(images, skip_unreadable)


def caches_of(contents: str, files: Sequence[Path], cache: Path | None = None) -> Iterator[CachedImages]:
    """All caches of these files, of any image size; without those with a damaged index, which cannot be identified."""
    for folder in sorted((cache or cache_dir()).glob("decoded/*")):
        with suppress(OSError, Damaged):
            if str(read_arrays(folder / INDEX)["contents"]) == contents:
                yield open_cache(folder, files)


def _recipe(files: Sequence[Path], image_size: int, background: str, cache: Path, contents: str) -> Recipe:
    """Pixels unless they exceed the limit, else JPEGs; without a limit set by the user, an existing cache of either."""
    pixels, jpeg = Recipe(image_size, background, "pixels"), Recipe(image_size, background, "jpeg")
    limit = _limit()
    if limit is None:
        for recipe in (pixels, jpeg):
            if os.path.isdir(cache / "decoded" / recipe.key(contents)):
                return recipe
        limit = MEMORY_SHARE * (total_memory() or sys.maxsize)
    return pixels if pixels.bytes_of(files) <= limit else jpeg


def _limit() -> float | None:
    """The user's limit on the bytes of decoded pixels; None if it is not set."""
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


def _opened(folder: Path, files: Sequence[Path], *, quiet: bool = False) -> CachedImages | None:
    """The finished cache; None if it is missing or damaged. Damage is reported unless `quiet`."""
    try:
        return open_cache(folder, files) if os.path.isdir(folder) else None
    except (Damaged, FileNotFoundError) as error:
        if not quiet:
            found = f"Expected {error.filename}. Found none." if isinstance(error, FileNotFoundError) else str(error)
            report(f"{found} The images are decoded again.")
        return None
    except OSError as error:
        raise UserError(
            f"Expected to read decoded images in {folder}. It is not possible ({error.strerror}). Change its "
            "permissions, or set FGMIX_CACHE to another folder."
        ) from error


def _require_readable(images: CachedImages, skip_unreadable: bool) -> CachedImages:
    if not skip_unreadable and len(images.readable) < len(images):
        raise cannot_decode(images.sources[int(np.flatnonzero(images.heights == 0)[0])], "found so before")
    return images
