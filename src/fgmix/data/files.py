"""Open regular files, and read and write arrays with a checksum."""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fgmix.errors import FAILURES, MachineError, readable_size
from fgmix.records.digests import check_zip, damage_error, seal_zip
from fgmix.records.files import write_bytes

Arrays = Mapping[str, npt.NDArray[Any]]
StrPath = str | Path  # of many files as texts: 120 bytes each, where a `Path` that was used takes 420

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFREG: "a file",
}


def open_file(path: StrPath) -> io.BufferedReader:
    """Open a regular file for reading; OSError with a readable `strerror` for anything else.

    Reading a named pipe may block forever, and a device may never end. The kind is checked before the file is opened,
    because opening a device can have side effects.
    """
    kind = stat.S_IFMT(os.stat(path).st_mode)
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"It is {_KINDS.get(kind, 'something special')}, not a file", str(path))
    return open(path, "rb")


def raise_failure(error: OSError, path: StrPath) -> None:
    """Raise a MachineError if the disk or the mount failed; else do nothing."""
    if error.errno in FAILURES:
        sentence = f"Expected to read {path}. It failed ({error.strerror}). Check the disk or the mount, then rerun."
        raise MachineError(sentence) from error


def describe_path(path: Path) -> str:
    """Say what is at a path, for an error message: a file, a folder, nothing there, …

    >>> describe_path(Path("/")), describe_path(Path("/no/such"))
    ('a folder', 'nothing there')
    """
    try:
        return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode), "something special")
    except FileNotFoundError:
        return "a link to nothing" if os.path.islink(path) else "nothing there"
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL character
        return f"something that cannot be read ({getattr(error, 'strerror', None) or error})"


def require_space(folder: Path, needed: float, what: str, remedy: str = "choose another --data-root") -> None:
    """Raise a MachineError if the disk of `folder` has less than `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise MachineError(
            f"Expected {readable_size(needed)} of free disk for {what}. Found {readable_size(free)} at {folder}. Free "
            f"space, or {remedy}."
        )


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write an .npz file atomically, with its digest."""
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    write_bytes(path, seal_zip(packed.getvalue()))


def read_arrays(path: Path) -> Arrays:
    """Read what `write_arrays` wrote; Damaged if the content is not as written, OSError if it cannot be read."""
    with open_file(path) as file:
        data = file.read()
    check_zip(data, str(path))
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as packed:
            return dict(packed)
    except Exception as error:  # the digest matches but it is no .npz: numpy, zipfile and zlib raise different errors
        raise damage_error(str(path)) from error
