"""Unpack an untrusted archive: zip, tar, tar.gz.

All members are checked before anything is written: only regular files and folders, only paths inside the target folder,
limited in number and size. The standard library writes them, `tarfile` through its data filter. A name that occurs
twice and a file that is not as long as declared are errors. Owners, modes and times in the archive are ignored.
"""

from __future__ import annotations

import gzip
import lzma
import os
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from fgmix.data.files import require_space
from fgmix.errors import UserError, machine_error
from fgmix.progress import Progress

GB = 1_000_000_000
CHUNK = 1 << 20
LONGEST_READ = 1 << 24  # bytes that tarfile may request at once: it reads a long name at once, whatever its length
HEADERS = 4096  # bytes of a member in a tar beside its content: header, long name, padding
LITTER = {"__MACOSX", ".DS_Store"}  # added to archives by macOS, as are files named ._x


@dataclass(frozen=True)
class Limits:
    """Limits on the unpacked bytes of an archive, and on its number of files and folders."""

    bytes: int
    files: int = 2_000_000  # three times DomainNet


class BadArchive(UserError):
    """An archive that is damaged or malicious, or a file that is not an archive."""


@dataclass(frozen=True)
class Member:
    """A file or folder of an archive; `extract` writes it below a folder."""

    path: PurePosixPath
    size: int
    is_folder: bool
    extract: Callable[..., object]


def unpack(archive: Path, folder: Path, limits: Limits, *, progress: bool = True) -> int:
    """Write the members of a zip, tar or tar.gz to a folder, whose files are not overwritten; return their bytes."""
    count, size = inspect(archive, limits)
    require_space(folder, size, f"what {archive.name} holds")
    with _members(archive, limits) as members, Progress(f"unpack {archive.name}", count, "files", show=progress) as bar:
        for member in members:
            _write(member, folder, archive)
            bar.advance()
    return size


def inspect(archive: Path, limits: Limits) -> tuple[int, int]:
    """Count the members and their unpacked bytes, as declared; BadArchive if a member is not allowed."""
    count = size = 0
    with _members(archive, limits) as members:
        for member in members:
            count += 1
            size += member.size
            if size > limits.bytes:
                raise _too_large(archive, limits)
            if count > limits.files:
                raise UserError(f"Expected at most {limits.files:,} files in {archive}. Found more.")
    return count, size


def safe_path(name: str, archive: Path, *, is_plain: bool = True) -> PurePosixPath:
    """Check that a member is a file or folder, and its name a relative path that stays inside the target folder.

    >>> safe_path("./PACS/photo/dog/1.jpg", Path("PACS.zip"))
    PurePosixPath('PACS/photo/dog/1.jpg')
    """
    path = PurePosixPath(name)
    # a backslash or a drive letter would mean a folder on Windows
    if path.is_absolute() or ".." in path.parts or re.search(r"[\\\0]|^[A-Za-z]:", name):
        raise BadArchive(f"Expected names below a folder in {archive}. Found {name!r}: nothing of it is unpacked.")
    if not is_plain:
        raise BadArchive(f"Expected files and folders alone in {archive}. Found a link or device, {name!r}.")
    return path


def _write(member: Member, folder: Path, archive: Path) -> None:
    path = folder / member.path
    try:
        if not member.is_folder and os.path.lexists(path):
            raise FileExistsError
        member.extract(folder)
        if not member.is_folder and path.stat().st_size != member.size:
            raise BadArchive(f"Expected {member.size:,} bytes of {str(member.path)!r} in {archive}. Found fewer.")
    except gzip.BadGzipFile:  # an OSError, but caused by the archive
        raise
    except (FileExistsError, NotADirectoryError) as error:
        raise BadArchive(f"Expected every name once in {archive}. Found {str(member.path)!r} twice.") from error
    except OSError as error:
        if error.errno is None:  # of bz2, caused by the archive
            raise BadArchive(f"Expected a whole archive at {archive}. It is damaged ({error}).") from error
        raise machine_error(error, path, member.size) from error


@contextmanager
def _members(archive: Path, limits: Limits) -> Iterator[Iterator[Member]]:
    """Open an archive and check its members one by one; errors of its format become BadArchive."""
    try:
        with open(archive, "rb") as file:
            start = file.read(CHUNK)
            file.seek(0)
            if start.startswith(b"PK"):
                members = _zip_members(file, archive)
            elif start.startswith(b"\x1f\x8b"):
                members = _tar_members(gzip.GzipFile(fileobj=file), archive, limits)
            elif start[257:262] == b"ustar":
                members = _tar_members(file, archive, limits)
            else:
                raise BadArchive(f"Expected a zip, tar or tar.gz archive at {archive}. Found another kind of file.")
            yield (member for member in members if member.path.parts and not any(map(_is_litter, member.path.parts)))
    except (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError) as error:
        raise BadArchive(f"Expected a whole archive at {archive}. It is damaged ({error}).") from error
    except RuntimeError as error:  # of zipfile: a password; NotImplementedError: a rare compression
        raise BadArchive(f"Expected a common compression without a password in {archive}. Found: {error}.") from error


def _is_litter(part: str) -> bool:
    return part in LITTER or part.startswith("._")


def _zip_members(file: IO[bytes], archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(file) as opened:
        for info in opened.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)  # zero if the archive was not created on Unix
            path = safe_path(info.filename, archive, is_plain=kind in (0, stat.S_IFREG, stat.S_IFDIR))
            yield Member(path, info.file_size, info.is_dir(), partial(opened.extract, info))


def _tar_members(file: IO[bytes] | gzip.GzipFile, archive: Path, limits: Limits) -> Iterator[Member]:
    guarded = _Guarded(file, archive, limits)
    with tarfile.open(fileobj=guarded, mode="r:") as opened:  # type: ignore[call-overload]
        for info in opened:
            is_plain = (info.isreg() or info.isdir()) and not info.issparse()
            path = safe_path(info.name, archive, is_plain=is_plain)
            extract = partial(opened.extract, info, filter=_plain_data)
            yield Member(path, info.size if info.isreg() else 0, info.isdir(), extract)
            opened.members = []  # else tarfile keeps every header in memory
        if guarded.last != bytes(tarfile.BLOCKSIZE):  # tarfile does not require an end mark
            raise tarfile.ReadError("it stops before its end mark")
        while guarded.read(CHUNK):  # gzip verifies its checksum at the very end
            pass


def _plain_data(info: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """Apply tarfile's data filter, and ignore modes and times as well."""
    return tarfile.data_filter(info, folder).replace(mode=None, mtime=None)  # type: ignore[arg-type]


class _Guarded:
    """A stream for tarfile with limits on the size of a single read and on the length of the stream."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile, archive: Path, limits: Limits) -> None:
        self._file, self._archive, self._limits = file, archive, limits
        self.last = b""  # result of the last read
        self.tell = file.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= LONGEST_READ:
            raise BadArchive(f"Expected headers of some hundred bytes in {self._archive}. Found one of {size:,}.")
        self._require(self.tell())
        self.last = self._file.read(size)
        return self.last

    def seek(self, position: int) -> int:
        self._require(position)
        return self._file.seek(position)

    def _require(self, position: int) -> None:
        if position > self._limits.bytes + self._limits.files * HEADERS:
            raise _too_large(self._archive, self._limits)


def _too_large(archive: Path, limits: Limits) -> UserError:
    return UserError(f"Expected at most {limits.bytes / GB:g} GB unpacked in {archive}. Found more. Raise --max-gb.")
