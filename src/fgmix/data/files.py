"""Open regular files, read CSV files, and read and write arrays with a checksum."""

from __future__ import annotations

import csv
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

from fgmix.errors import FAILURES, MachineError, UserError, readable_size
from fgmix.records.digests import check_zip, damage_error
from fgmix.records.files import Draft

Arrays = Mapping[str, npt.NDArray[Any]]
LARGEST_CSV = 2_000_000_000  # bytes: more than ten million images need
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


def read_csv(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Read a CSV file in UTF-8: its header, and the cells of every other line with its number; blank lines are dropped.

    UserError if it cannot be read, or if a line has not as many cells as the header.
    """
    try:
        with open_file(path) as file:
            if os.fstat(file.fileno()).st_size > LARGEST_CSV:
                raise UserError(f"Expected a CSV file of at most {LARGEST_CSV / 1e9:g} GB at {path}. Found more.")
            text = file.read().decode("utf-8-sig")  # spreadsheets write a byte order mark
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        lines = [(reader.line_num, cells) for cells in reader if cells]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"Expected a CSV file in UTF-8 at {path}. It cannot be read ({reason}).") from error
    header = [name.strip() for name in lines[0][1]] if lines else []
    for number, cells in lines[1:]:
        if len(cells) != len(header):
            raise UserError(
                f"Expected {len(header)} cells in line {number} of {path}. Found {len(cells)}. Quote commas."
            )
    return header, lines[1:]


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write an .npz file atomically, with its digest."""
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    Draft(path, lambda file: file.write(packed.getvalue()), seal=True).put()


def read_arrays(path: Path) -> Arrays:
    """Read what `write_arrays` wrote; Damaged if the content is not as written, OSError if it cannot be read."""
    with open_file(path) as file:
        check_zip(file, str(path))
        try:
            with np.load(file, allow_pickle=False) as packed:
                return dict(packed)
        except Exception as error:  # the digest matches but it is no .npz: numpy, zipfile and zlib raise different ones
            raise damage_error(str(path)) from error
