"""Fetch a file over HTTP, and unpack an archive safely.

An interrupted transfer resumes: bytes are appended to `name.part`, and the file is either complete or absent. If the
server's file changes meanwhile, the result is a damaged archive, which its digest or its own checksums show: `download`
deletes it, and the next call fetches it again.

The standard library unpacks: `zipfile` and the data filter of `tarfile` keep every file within its folder. Links and
devices are refused, and modes and times ignored.
"""

from __future__ import annotations

import http.client
import lzma
import re
import ssl
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import urlsplit

from fgmix.data.files import require_space
from fgmix.errors import UserError, machine_error
from fgmix.progress import Progress

MB = 1_000_000
CHUNK = 1 << 20  # bytes of a read
SILENCE = 60.0  # seconds without a byte before a connection counts as broken
ATTEMPTS = 5  # consecutive ones without progress before an error is raised
WAIT = 1.0  # seconds before the second attempt; each further wait is twice as long
PASSING = {408, 416, 425, 429, 500, 502, 503, 504}  # HTTP status codes that are worth a retry
WAY_OUT = "Give another address with --url, or a file that you have with --archive."
LITTER = ("__MACOSX", ".DS_Store", "._")  # added to archives by macOS

Member = tuple[str, int, Callable[..., object]]  # name, bytes, and a function that writes it below a folder


class _Broken(Exception):
    """A temporary error of the network or the server."""


def fetch(url: str, target: Path, *, most: int, progress: bool = True) -> Path:
    """Download the file at `url`, of at most `most` bytes, to `target`; an existing file is not changed."""
    part = target.with_name(f"{target.name}.part")
    furthest, fruitless = _size(part), 0
    while not target.exists():
        try:
            _transfer(url, part, most, progress)
            part.replace(target)
        except _Broken as error:
            # compared with the furthest point: a server without ranges starts over, and must not do so forever
            fruitless = 1 if _size(part) > furthest else fruitless + 1
            furthest = max(furthest, _size(part))
            if fruitless >= ATTEMPTS:
                kept = f" {_size(part) / MB:,.1f} MB are kept: rerun to resume." if _size(part) else ""
                raise UserError(
                    f"Expected an answer from {url}. Found none ({error}).{kept} Check the network and HTTPS_PROXY. "
                    f"{WAY_OUT}"
                ) from error
            time.sleep(WAIT * 2 ** (fruitless - 1))
    return target


def _transfer(url: str, part: Path, most: int, progress: bool) -> None:
    """Download the rest of the file over one connection; if it breaks, keep the bytes received and raise _Broken."""
    with _request(url, part) as response:
        if response.headers.get_content_type() == "text/html":
            with _network_errors():
                title = re.search(r"<title>(.*?)</title>", response.read(CHUNK).decode("utf-8", "replace"), re.DOTALL)
            found = " ".join(title[1].split())[:100] if title else ""
            raise UserError(f"Expected an archive at {url}. Found a web page titled {found!r}. {WAY_OUT}")
        size = start = _size(part) if response.status == 206 else 0  # else the server sends the whole file
        total = None if response.length is None else start + response.length
        _require_size(total or 0, most, url)
        # images are hardly compressible: unpacked they take about as much again
        require_space(part.parent, 2 * (total or 0) - start, f"{url} and what it holds")
        label = f"download {part.name.removesuffix('.part')}"
        bar = Progress(label, -(-(total or 0) // MB), "MB", done=start // MB, show=progress and total is not None)
        try:
            with open(part, "ab" if start else "wb") as file, bar:
                for chunk in _read(response):
                    size += len(chunk)
                    _require_size(size, most, url)
                    file.write(chunk)
                    bar.advance(-(-size // MB) - bar.done)
        except OSError as error:  # an error of the disk: those of the connection are _Broken
            raise machine_error(error, part, total) from error
    if total is not None and size < total:
        raise _Broken("the connection closed early")


def _request(url: str, part: Path) -> http.client.HTTPResponse:
    """Request what is missing of the file."""
    no_address = f"Expected an address http://… or https://…. Found {url!r}. For a file of your own use --archive."
    if urlsplit(url).scheme not in ("http", "https"):
        raise UserError(no_address)
    rest = {"Range": f"bytes={_size(part)}-"} if _size(part) else {}
    request = urllib.request.Request(url, headers={"User-Agent": "fgmix", **rest})
    try:
        with _network_errors():
            response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=SILENCE)
            return response
    except urllib.error.HTTPError as error:
        answer = f"{error.code} {error.reason}".strip()
        error.close()
        if error.code == 416:  # nothing is missing, or the part is of another file
            part.unlink()
        if error.code in PASSING:
            raise _Broken(f"it answers {answer}") from error
        raise UserError(f"Expected an archive at {url}. The server answers {answer}. {WAY_OUT}") from error
    except (http.client.InvalidURL, UnicodeError) as error:
        raise UserError(no_address) from error


@contextmanager
def _network_errors() -> Iterator[None]:
    """Turn errors of the connection into _Broken."""
    try:
        yield
    except (urllib.error.HTTPError, http.client.InvalidURL):
        raise
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)  # URLError has one
        if isinstance(reason, ssl.SSLCertVerificationError):
            invalid = f"Expected a valid certificate of the server. Found {reason.verify_message}."
            raise UserError(f"{invalid} Set SSL_CERT_FILE to those that your network uses.") from error
        raise _Broken(str(reason) or type(reason).__name__) from error


def _read(response: http.client.HTTPResponse) -> Iterator[bytes]:
    with _network_errors():
        while chunk := response.read1(CHUNK):
            yield chunk


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _require_size(size: int, most: int, what: object) -> None:
    if size > most:
        raise UserError(f"Expected at most {most / MB:,g} MB in {what}. Found more. If that is right, raise --max-gb.")


class BadArchive(UserError):
    """An archive that is damaged or malicious, or a file that is not an archive."""


def unpack(archive: Path, folder: Path, most: int, *, progress: bool = True) -> int:
    """Write the files of a zip, tar or tar.gz to a folder; return their bytes, of which at most `most` are allowed.

    If it fails, the folder holds what was written before: delete it.
    """
    size = 0
    try:
        total = -(-archive.stat().st_size // MB)
        with open(archive, "rb") as file, Progress(f"unpack {archive.name}", total, "MB", show=progress) as bar:
            for name, length, extract in (_zip_members if file.peek(2)[:2] == b"PK" else _tar_members)(file):
                size += length
                _require_size(size, most, archive)
                if not any(part.startswith(LITTER) for part in PurePosixPath(name).parts):
                    extract(folder)
                bar.advance(file.tell() // MB - bar.done)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, RuntimeError) as error:
        # RuntimeError: of zipfile, a password or a rare compression
        raise BadArchive(f"Expected a whole zip, tar or tar.gz at {archive}. It cannot be read ({error}).") from error
    except OSError as error:
        if error.errno is None:  # of gzip and bz2, caused by the archive
            raise BadArchive(f"Expected a whole zip, tar or tar.gz at {archive}. It is damaged ({error}).") from error
        raise machine_error(error, folder) from error
    return size


def _zip_members(file: IO[bytes]) -> Iterator[Member]:
    with zipfile.ZipFile(file) as opened:  # drops a leading / from names, and writes links as files
        for info in opened.infolist():
            if ".." in PurePosixPath(info.filename).parts:
                raise zipfile.BadZipFile(f"{info.filename!r} leads out of it")
            yield info.filename, info.file_size, partial(opened.extract, info)


def _tar_members(file: IO[bytes]) -> Iterator[Member]:
    with tarfile.open(fileobj=file) as opened:
        for info in opened:
            yield info.name, info.size, partial(opened.extract, info, filter=_keep_plain)
            opened.members = []  # type: ignore[attr-defined]  # else tarfile keeps every header in memory
        while opened.fileobj and opened.fileobj.read(CHUNK):  # gzip verifies its checksum at the very end
            pass


def _keep_plain(info: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """Apply tarfile's data filter, refuse links, and ignore modes and times."""
    if not (info.isreg() or info.isdir()):
        raise tarfile.SpecialFileError(info)
    return tarfile.data_filter(info, folder).replace(mode=None, mtime=None)  # type: ignore[arg-type]
