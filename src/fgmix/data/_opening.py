"""Open regular files only: reading a named pipe may block forever, and a device may never end."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

from fgmix.errors import FAILURES, MachineError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFREG: "a file",
}


def open_file(path: Path) -> io.BufferedReader:
    """Open a regular file for reading; OSError with a readable `strerror` for anything else.

    The kind is checked before the file is opened, because opening a device can have side effects.
    """
    kind = stat.S_IFMT(os.stat(path).st_mode)
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"It is {_KINDS.get(kind, 'something special')}, not a file", str(path))
    return open(path, "rb")


def raise_failure(error: OSError, path: Path) -> None:
    """Raise a MachineError if the disk or the mount failed; else do nothing."""
    if error.errno in FAILURES:
        raise MachineError(
            f"Expected to read {path}. It failed ({error.strerror}). Check the disk or the mount, then rerun."
        ) from error


def what_is(path: Path) -> str:
    """What is at a path, for an error message: a file, a folder, nothing there, …

    >>> what_is(Path("/")), what_is(Path("/no/such"))
    ('a folder', 'nothing there')
    """
    try:
        return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode), "something special")
    except FileNotFoundError:
        return "a link to nothing" if os.path.islink(path) else "nothing there"
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL character
        return f"something that cannot be read ({getattr(error, 'strerror', None) or error})"
