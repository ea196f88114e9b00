"""Read arrays from an untrusted .npz file: declared sizes are checked before memory is allocated."""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fgmix.data.files import open_file
from fgmix.errors import UserError

DEFLATE = 1100  # the largest compression ratio of deflate, with a margin
GB = 1_000_000_000


@dataclass(frozen=True)
class Npz:
    """The content of an .npz file.

    Args:
        arrays: the requested arrays, by lower-case name.
        others: names of the other arrays.
        names: names of all arrays, as in the file.
    """

    arrays: dict[str, npt.NDArray[Any]]
    others: tuple[str, ...]
    names: tuple[str, ...]


def open_npz(path: Path, keys: Sequence[str]) -> Npz:
    """Read the arrays of an .npz file whose names are in `keys`, in upper or lower case."""
    with _faults(path), open_file(path) as file:
        _require_zip(file, path)
        with zipfile.ZipFile(file) as archive:
            members = _members(archive, path)
            wanted = {key: members[key] for key in members if key in keys}
            on_disk = os.fstat(file.fileno()).st_size
            for info in wanted.values():
                _require_plain(archive, info, on_disk, path)
            _require_memory(sum(info.file_size for info in wanted.values()), path)
            arrays = {key: _read(archive, info) for key, info in wanted.items()}
    names = {key: _name(info) for key, info in members.items()}
    return Npz(arrays, tuple(name for key, name in names.items() if key not in keys), tuple(names.values()))


def _name(info: zipfile.ZipInfo) -> str:
    return info.filename.removesuffix(".npy")


def _members(archive: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    """Find the members of the archive by lower-case name; UserError if two differ only in case."""
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        key = _name(info).lower()
        if key in members:
            names = [_name(each) for each in (members[key], info)]
            raise UserError(f"Expected one array {key!r} in {path}. Found {' and '.join(names)}. Remove one of them.")
        members[key] = info
    return members


def _require_plain(archive: zipfile.ZipFile, info: zipfile.ZipInfo, on_disk: int, path: Path) -> None:
    """Read only the header of an array: it must declare plain values, as many as the file contains."""
    with archive.open(info) as stream:
        shape, dtype = _header(stream)
        header = stream.tell()
    if dtype.hasobject:
        raise UserError(
            f"Expected numbers or texts in the array {_name(info)!r} of {path}. Found Python objects (dtype object). "
            "Convert it before saving: texts with .astype(str), numbers with .astype(float)."
        )
    most = on_disk * (DEFLATE if info.compress_type == zipfile.ZIP_DEFLATED else 1)
    is_known = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    size = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or header + size != info.file_size or (is_known and info.file_size > most):
        raise UserError(
            f"Expected as many values in the array {_name(info)!r} of {path} as it announces, {shape} of {dtype}. "
            "Found another number: it is damaged. Save it again."
        )


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise ValueError(f"version {version} of the .npy format")
    return shape, dtype


def free_memory() -> int | None:
    """Return the bytes that can be allocated without swapping; None if they are unknown."""
    try:
        with open("/proc/meminfo") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def _require_memory(needed: int, path: Path) -> None:
    free = free_memory()
    if free is not None and needed > free:
        raise UserError(
            f"Expected arrays that fit into memory, {free / GB:.1f} GB, in {path}. Found {needed / GB:,.1f} GB. Use a "
            "machine with more memory, or fewer samples."
        )


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> npt.NDArray[Any]:
    with archive.open(info) as stream:
        array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        return array


def _require_zip(file: io.BufferedReader, path: Path) -> None:
    start = file.peek(8)[:8]
    if start.startswith(b"\x93NUMPY"):
        raise UserError(
            f"Expected several arrays in {path}. Found a single one, as numpy.save writes it. Save X, y and domain "
            "with numpy.savez."
        )
    if not start.startswith(b"PK"):
        what = "an empty file" if not start else "another kind of file"
        raise UserError(f"Expected an .npz file, as numpy.savez writes it, at {path}. Found {what}.")


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    """Turn the errors of numpy, zipfile and the decompressors for a broken file into a UserError."""
    try:
        yield
    except UserError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"Expected an .npz file at {path}. It cannot be read ({reason}). Check the file.") from error
    except Exception as error:  # BadZipFile, zlib.error, LZMAError, EOFError, ValueError, RuntimeError (a password), …
        reason = next(iter(str(error).splitlines()), type(error).__name__)  # some messages of numpy have several lines
        raise UserError(f"Expected a whole .npz file at {path}. It is damaged ({reason}). Save it again.") from error
