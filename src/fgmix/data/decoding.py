"""Build the decoded cache in a temporary folder, which is renamed when it is complete."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from fgmix.data._arrays_file import Arrays, write_arrays
from fgmix.data._threads import in_threads
from fgmix.data.cached_images import IMAGES, INDEX, checksum
from fgmix.data.images import Unreadable, quiet_decoding
from fgmix.data.recipe import Recipe
from fgmix.errors import MachineError, UserError, readable_size
from fgmix.progress import Progress
from fgmix.records.files import at_once

ABANDONED = 3600  # seconds after which an unfinished cache of another machine, whose locks may be invisible, is deleted


def build_cache(
    files: Sequence[Path], recipe: Recipe, contents: str, folder: Path, *, skip_unreadable: bool, progress: bool
) -> None:
    """Decode into a folder next to `folder`, then rename it to `folder`. The caller must hold the lock."""
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
        shutil.rmtree(folder, ignore_errors=True)  # if it exists, it is damaged
        try:
            os.rename(temporary, folder)
        except OSError:
            if not os.path.isdir(folder):  # else another machine, whose locks are invisible here, was faster
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_images(files: Sequence[Path], recipe: Recipe, path: Path, skip_unreadable: bool, progress: bool) -> Arrays:
    """Append every image to `path`; return the arrays of the index."""
    n = len(files)
    lengths, heights, widths = np.zeros((3, n), dtype=np.int64)
    checksums, changes = np.zeros(n, np.uint32), np.zeros(n, np.uint8)
    # written, not mapped: a full disk then raises an error instead of killing the process
    with open(path, "xb") as out, Progress("decode images", n, show=progress) as bar:
        for row, kept in enumerate(in_threads(recipe.keep, files)):
            if not isinstance(kept, Unreadable):
                out.write(kept.data)
                lengths[row], (widths[row], heights[row]), changes[row] = len(kept.data), kept.size, kept.changes
                checksums[row] = checksum(kept.data)
            elif not skip_unreadable:
                raise cannot_decode(files[row], kept.reason)
            bar.advance()
        out.flush()
        os.fsync(out.fileno())  # else a power failure could leave a finished folder without its content
    return {"lengths": lengths, "heights": heights, "widths": widths, "checksums": checksums, "changes": changes}


def _remove_abandoned(folder: Path) -> None:
    """Delete leftovers of interrupted builds: those of this machine, whose lock we hold, and old ones of others."""
    for left in folder.parent.glob(f"{folder.name}.*.tmp"):
        ours = left.name.startswith(f"{folder.name}.{_host()}.")
        with suppress(OSError):
            touched = max(os.stat(path).st_mtime for path in (left, *left.iterdir()))
            if ours or touched < time.time() - ABANDONED:
                shutil.rmtree(left, ignore_errors=True)


def _host() -> str:
    return socket.gethostname().replace(".", "_")


def _require_space(files: Sequence[Path], recipe: Recipe, folder: Path) -> None:
    """Raise an error if the disk is too full, before decoding starts."""
    needed, free = recipe.bytes_of(files), shutil.disk_usage(folder).free
    if needed > free:
        raise MachineError(
            f"Expected about {readable_size(needed)} for decoded images under {folder.parent}. Found "
            f"{readable_size(free)} free. Set FGMIX_CACHE to a folder with more space, or use a smaller image size."
        )


@contextmanager
def turn(path: Path, *, show: bool) -> Iterator[None]:
    """Wait for a lock, which is released when the process that holds it ends.

    If the file system has no locks, or none across machines, two processes may build at once, each in its own folder;
    the first to finish is kept.
    """
    from filelock import lock_descriptor

    with open(path, "a", opener=at_once) as file:
        with suppress(OSError):
            if not lock_descriptor(file.fileno(), blocking=False):
                if show:
                    print("waiting for another process that decodes these images", file=sys.stderr)
                lock_descriptor(file.fileno())
        yield


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Turn an error of a full or read-only disk into a MachineError."""
    try:
        yield
    except OSError as error:
        raise MachineError(
            f"Expected to write decoded images under {folder}. It is not possible ({error.strerror or error}). "
            "Make room there, or set FGMIX_CACHE to a folder that can be written to."
        ) from error


def cannot_decode(path: Path, reason: str) -> UserError:
    """The error for a file that cannot be decoded."""
    return UserError(
        f"Expected an image at {path}. It cannot be decoded ({reason}). "
        "Replace or remove it, or pass --skip-unreadable to leave such files out."
    )
