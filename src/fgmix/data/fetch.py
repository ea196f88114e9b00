"""Download a large file over HTTP: an interrupted transfer is resumed, and the file is either complete or absent.

Bytes are appended to `name.part`. `name.part.json` stores the length and the version (ETag, else Last-Modified) that
the server declared, so that parts of two versions are never joined: the version is sent as `If-Range`, and if the
server ignores ranges or has another version, the download starts again.

Google Drive returns a web page for a file that is too large for its virus scan. The form on that page is followed once.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

from fgmix.errors import MachineError, UserError, machine_error, readable_size
from fgmix.progress import Progress
from fgmix.records.files import read_json, write_json

MB = 1_000_000
CHUNK = 1 << 20
PAGE = 1 << 20  # bytes read of an HTML response
SILENCE = 60.0  # seconds without a byte before a connection counts as broken
PASSING = {408, 425, 429, 500, 502, 503, 504}  # HTTP status codes that are worth a retry
WAY_OUT = "Give another address with --url, or a file that you have with --archive."


@dataclass(frozen=True)
class Retry:
    """How an interrupted transfer is resumed.

    Args:
        attempts: number of consecutive attempts without progress before an error is raised.
        wait: seconds before the second attempt; each further wait is twice as long.
    """

    attempts: int = 5
    wait: float = 1.0


class _Broken(Exception):
    """A temporary error of the network or the server."""


@dataclass(frozen=True)
class _Partial:
    """The bytes downloaded so far, and a note on their version."""

    path: Path

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def note_path(self) -> Path:
        return self.path.with_name(self.path.name + ".json")

    def note(self) -> dict[str, Any]:
        """{"length", "version"}; empty if the note is missing or damaged."""
        try:
            return read_json(self.note_path)
        except UserError:
            return {}

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self.note_path.unlink(missing_ok=True)

    def headers(self) -> dict[str, str]:
        """HTTP headers that request the rest of this version."""
        note = self.note()
        version = note.get("version")
        if not self.size or not (version or note.get("length")):  # another version could not be detected
            return {}
        return {"Range": f"bytes={self.size}-"} | ({"If-Range": version} if version else {})


def fetch(url: str, target: Path, *, most: int, retry: Retry | None = None, progress: bool = True) -> Path:
    """Download the file at `url` to `target`; an existing file is not changed.

    Args:
        url: http or https.
        target: path of the file, in an existing folder. `target.part` and `target.part.json` are temporary files.
        most: largest number of bytes; a longer file is an error.
        retry: how to resume after an error.
        progress: show a progress bar.
    """
    if target.exists():
        return target
    retry = retry or Retry()
    partial = _Partial(target.with_name(target.name + ".part"))
    furthest, fruitless = partial.size, 0
    while True:
        try:
            _transfer(url, partial, most, progress)
            break
        except _Broken as error:
            # compared with the furthest point: a server without ranges starts over, and must not do so forever
            fruitless = 1 if partial.size > furthest else fruitless + 1
            furthest = max(furthest, partial.size)
            if fruitless >= retry.attempts:
                raise UserError(_unreachable(url, str(error), partial.size)) from error
            time.sleep(retry.wait * 2 ** (fruitless - 1))
    os.replace(partial.path, target)
    partial.discard()
    return target


def sha256_of(path: Path) -> str:
    """Hexadecimal digest of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_space(folder: Path, needed: int, what: str) -> None:
    """MachineError if the disk of `folder` has less than `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise MachineError(
            f"Expected {readable_size(needed)} of free disk for {what}. Found {readable_size(free)} at {folder}. Free "
            "space, or choose another --data-root."
        )


def _transfer(url: str, partial: _Partial, most: int, progress: bool) -> None:
    """Download the rest of the file over one connection; if it breaks, keep the bytes received and raise _Broken."""
    length = partial.note().get("length")
    if length and partial.size == length:
        return  # interrupted between the last byte and the renaming
    with _answer(url, partial) as response:
        start = _start(response, partial)
        total = _total(response, start)
        if total is not None:
            if total > most:
                raise _too_long(url, most, f"The server announces {total / MB:,.0f} MB")
            # images are hardly compressible: unpacked they take about as much again
            require_space(partial.path.parent, 2 * total - start, f"{url} and what it holds")
        if start == 0:
            partial.discard()
            write_json(partial.note_path, {"length": total, "version": _version(response)})
        _append(response, partial.path, start, total, most, progress)
    if total is not None and partial.size < total:
        raise _Broken("the connection closed early")


def _answer(url: str, partial: _Partial) -> HTTPResponse:
    """The response with the file, after submitting Google Drive's form if there is one."""
    response = _open(url, partial)
    if not _is_html(response):
        return response
    with response, _faults_of_the_connection():
        page = _Page(response.read(PAGE).decode("utf-8", "replace"))
    if page.action is not None:
        action = urljoin(response.url, page.action)
        joint = "&" if urlsplit(action).query else "?"
        response = _open(action + joint + urlencode(page.fields), partial)
        if not _is_html(response):
            return response
        response.close()
    title = f" titled {page.title!r}" if page.title else ""
    raise UserError(f"Expected an archive at {url}. Found a web page{title}. {WAY_OUT}")


def _open(url: str, partial: _Partial) -> HTTPResponse:
    if urlsplit(url).scheme not in ("http", "https"):
        raise UserError(
            f"Expected an address http://… or https://…. Found {url!r}. For a file of your own use --archive."
        )
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())  # Drive's form may set a cookie
    opener.addheaders = [("User-Agent", "fgmix")]
    try:
        response: HTTPResponse = opener.open(urllib.request.Request(url, headers=partial.headers()), timeout=SILENCE)
        return response
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(url, error, partial) from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise UserError(
                f"Expected a valid certificate of {urlsplit(url).hostname}. Found {error.reason.verify_message}. "
                "Set SSL_CERT_FILE to the certificates that your network uses."
            ) from error
        raise _Broken(str(error.reason)) from error
    except (http.client.InvalidURL, UnicodeError) as error:
        raise UserError(f"Expected an address http://… or https://…. Found {url!r}.") from error
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(str(error) or type(error).__name__) from error


def _refusal(url: str, error: urllib.error.HTTPError, partial: _Partial) -> Exception:
    """The exception for an HTTP error: _Broken if it is worth a retry, else a UserError."""
    if error.code == 416:  # the part is longer than the file: it belongs to another version
        partial.discard()
        return _Broken("the file has changed")
    answer = f"{error.code} {error.reason}".strip()
    if error.code in PASSING:
        return _Broken(f"it answers {answer}")
    return UserError(f"Expected an archive at {url}. The server answers {answer}. {WAY_OUT}")


def _start(response: HTTPResponse, partial: _Partial) -> int:
    """The first byte of the response's content in the file."""
    if response.status != 206:
        return 0
    start, total = _content_range(response)
    length = partial.note().get("length")
    if start != partial.size or (length is not None and total is not None and total != length):
        partial.discard()
        raise _Broken("the file has changed")
    return start


def _total(response: HTTPResponse, start: int) -> int | None:
    """Length of the whole file, if the server declares it."""
    if response.status == 206:
        return _content_range(response)[1]
    return start + response.length if response.length is not None else None


def _content_range(response: HTTPResponse) -> tuple[int, int | None]:
    """(first byte, length of the whole file) of a partial response."""
    match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", "").strip())
    if match is None:
        return -1, None  # matches no size
    return int(match[1]), None if match[2] == "*" else int(match[2])


def _version(response: HTTPResponse) -> str | None:
    """A strong ETag, else Last-Modified; a weak ETag does not guarantee identical bytes."""
    etag = response.headers.get("ETag", "")
    return etag if etag.startswith('"') else response.headers.get("Last-Modified")


def _append(response: HTTPResponse, path: Path, start: int, total: int | None, most: int, progress: bool) -> None:
    label = f"download {path.name.removesuffix('.part')} (MB)"
    bar = Progress(label, -(-(total or 0) // MB), done=start // MB, show=progress and total is not None)
    size = start
    try:
        with open(path, "ab") as file, bar:
            for chunk in _chunks(response):
                size += len(chunk)
                if size > most:
                    raise _too_long(response.url, most, "It sends more")
                file.write(chunk)
                if size // MB > bar.done:
                    bar.advance(size // MB - bar.done)
    except OSError as error:  # an error of the disk: those of the connection are _Broken
        raise machine_error(error, path, total) from error


def _chunks(response: HTTPResponse) -> Iterator[bytes]:
    """The body of the response in chunks; only errors of the connection become _Broken, not those of the disk."""
    while True:
        with _faults_of_the_connection():
            chunk = response.read1(CHUNK)
        if not chunk:
            return
        yield chunk


@contextmanager
def _faults_of_the_connection() -> Iterator[None]:
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(str(error) or type(error).__name__) from error


def _is_html(response: HTTPResponse) -> bool:
    return response.headers.get_content_type() == "text/html"


class _Page(HTMLParser):
    """Title of a web page, and the form with which Google Drive asks for confirmation of a download."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}
        self.title = ""
        self._inside: set[str] = set()
        self.feed(text)
        self.title = " ".join(self.title.split())[:100]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "form" and values.get("id") == "download-form":
            self.action = values.get("action", "")
            self._inside.add(tag)
        elif tag == "title":
            self._inside.add(tag)
        elif tag == "input" and "form" in self._inside and values.get("name"):
            self.fields[values["name"]] = values.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        self._inside.discard(tag)

    def handle_data(self, data: str) -> None:
        if "title" in self._inside:
            self.title += data


def _too_long(url: str, most: int, found: str) -> UserError:
    return UserError(f"Expected at most {most / MB:,.0f} MB at {url}. {found}. If the size is correct, raise --max-gb.")


def _unreachable(url: str, reason: str, size: int) -> str:
    kept = f" {size / MB:,.1f} MB are kept: rerun the same command to resume." if size else ""
    return (
        f"Expected an answer from {url}. Found none ({reason}).{kept} Check the network, and HTTPS_PROXY if it needs a "
        f"proxy. {WAY_OUT}"
    )
