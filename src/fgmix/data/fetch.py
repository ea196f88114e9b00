"""Download a large file over HTTP: an interrupted transfer is resumed, and the file is either complete or absent.

Bytes are appended to `name.part`. `name.part.json` stores the length and the version (ETag, else Last-Modified) that
the server declared, so that parts of two versions are never joined: the version is sent as `If-Range`, and if the
server ignores ranges or has another version, the download starts again.

Google Drive returns a web page for a file that is too large for its virus scan. The form on that page is followed once.
"""

from __future__ import annotations

import html
import http.client
import os
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

from fgmix.data.files import require_space
from fgmix.errors import UserError, machine_error
from fgmix.progress import Progress
from fgmix.records.files import read_json, write_json

MB = 1_000_000
CHUNK = 1 << 20  # bytes of a read
SILENCE = 60.0  # seconds without a byte before a connection counts as broken
ATTEMPTS = 5  # consecutive ones without progress before an error is raised
WAIT = 1.0  # seconds before the second attempt; each further wait is twice as long
PASSING = {408, 416, 425, 429, 500, 502, 503, 504}  # HTTP status codes that are worth a retry
WAY_OUT = "Give another address with --url, or a file that you have with --archive."


class _Broken(Exception):
    """A temporary error of the network or the server."""


class _Partial:
    """The bytes of a file downloaded so far, and a note {"length", "version"} on what the server declared."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(f"{target.name}.part")
        self.note_path = target.with_name(f"{target.name}.part.json")

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def note(self) -> dict[str, Any]:
        """Read the note; empty if it is missing or damaged."""
        try:
            return read_json(self.note_path)
        except UserError:
            return {}

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self.note_path.unlink(missing_ok=True)

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers that request the rest of this version."""
        note = self.note()
        version = note.get("version")
        if not self.size or not (version or note.get("length")):  # another version could not be detected
            return {}
        return {"Range": f"bytes={self.size}-"} | ({"If-Range": version} if version else {})


def fetch(url: str, target: Path, *, most: int, progress: bool = True) -> Path:
    """Download the file at `url`, of at most `most` bytes, to `target`; an existing file is not changed."""
    if target.exists():
        return target
    partial = _Partial(target)
    furthest, fruitless = partial.size, 0
    while True:
        try:
            _transfer(url, partial, most, progress)
            break
        except _Broken as error:
            # compared with the furthest point: a server without ranges starts over, and must not do so forever
            fruitless = 1 if partial.size > furthest else fruitless + 1
            furthest = max(furthest, partial.size)
            if fruitless >= ATTEMPTS:
                kept = f" {partial.size / MB:,.1f} MB are kept: rerun to resume." if partial.size else ""
                raise UserError(
                    f"Expected an answer from {url}. Found none ({error}).{kept} Check the network and HTTPS_PROXY. "
                    f"{WAY_OUT}"
                ) from error
            time.sleep(WAIT * 2 ** (fruitless - 1))
    os.replace(partial.path, target)
    partial.discard()
    return target


def _transfer(url: str, partial: _Partial, most: int, progress: bool) -> None:
    """Download the rest of the file over one connection; if it breaks, keep the bytes received and raise _Broken."""
    length = partial.note().get("length")
    if length and partial.size == length:
        return  # interrupted between the last byte and the renaming
    with _request_file(url, partial) as response:
        start, total = _range(response)
        if start and (start != partial.size or (None not in (length, total) and total != length)):
            partial.discard()
            raise _Broken("the file has changed")
        if total is not None:
            _require_length(total, most, url)
            # images are hardly compressible: unpacked they take about as much again
            require_space(partial.path.parent, 2 * total - start, f"{url} and what it holds")
        if start == 0:
            etag = response.headers.get("ETag", "")  # a weak one does not guarantee identical bytes
            version = etag if etag.startswith('"') else response.headers.get("Last-Modified")
            partial.discard()
            write_json(partial.note_path, {"length": total, "version": version})
        _append(response, partial.path, start, total, most, progress)
    if total is not None and partial.size < total:
        raise _Broken("the connection closed early")


def _request_file(url: str, partial: _Partial) -> HTTPResponse:
    """Request the file, and submit Google Drive's form if there is one."""
    for is_last in (False, True):
        response = _request(url, partial)
        if response.headers.get_content_type() != "text/html":
            return response
        with response, _network_errors():
            page = response.read(CHUNK).decode("utf-8", "replace")
        form = _form_address(page)
        if form is None or is_last:
            break
        url = urljoin(response.url, form)
    title = " ".join("".join(re.findall(r"<title>(.*?)</title>", page, re.DOTALL)).split())[:100]
    raise UserError(f"Expected an archive at {url}. Found a web page titled {title!r}. {WAY_OUT}")


def _form_address(page: str) -> str | None:
    """Return the address to which the form on Google Drive's page is submitted; None if there is no such form."""
    form = re.search(r'<form[^>]*\bid="download-form".*?</form>', page, re.DOTALL)
    if form is None:
        return None
    tags = re.findall(r"<(?:form|input)\b[^>]*>", form[0])
    action, *inputs = ({k: html.unescape(v) for k, v in re.findall(r'(\w+)="([^"]*)"', tag)} for tag in tags)
    fields = urlencode({each["name"]: each.get("value", "") for each in inputs if "name" in each})
    address = action.get("action", "")
    return address + ("&" if urlsplit(address).query else "?") + fields


def _request(url: str, partial: _Partial) -> HTTPResponse:
    no_address = f"Expected an address http://… or https://…. Found {url!r}. For a file of your own use --archive."
    if urlsplit(url).scheme not in ("http", "https"):
        raise UserError(no_address)
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())  # Drive's form may set a cookie
    opener.addheaders = [("User-Agent", "fgmix")]
    try:
        with _network_errors():
            request = urllib.request.Request(url, headers=partial.headers())
            response: HTTPResponse = opener.open(request, timeout=SILENCE)
            return response
    except urllib.error.HTTPError as error:
        answer = f"{error.code} {error.reason}".strip()
        error.close()
        if error.code == 416:  # the part is longer than the file: it belongs to another version
            partial.discard()
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


def _range(response: HTTPResponse) -> tuple[int, int | None]:
    """Return the first byte of the response's content in the file, and the length of the file if it is declared."""
    if response.status != 206:
        return 0, response.length
    match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", "").strip())
    if match is None:
        return -1, None  # matches no size
    return int(match[1]), None if match[2] == "*" else int(match[2])


def _append(response: HTTPResponse, path: Path, start: int, total: int | None, most: int, progress: bool) -> None:
    label = f"download {path.name.removesuffix('.part')}"
    bar = Progress(label, -(-(total or 0) // MB), "MB", done=start // MB, show=progress and total is not None)
    size = start
    try:
        with open(path, "ab") as file, bar:
            while True:
                with _network_errors():
                    chunk = response.read1(CHUNK)
                if not chunk:
                    return
                size += len(chunk)
                _require_length(size, most, response.url)
                file.write(chunk)
                bar.advance(-(-size // MB) - bar.done)
    except OSError as error:  # an error of the disk: those of the connection are _Broken
        raise machine_error(error, path, total) from error


def _require_length(size: int, most: int, url: str) -> None:
    if size > most:
        raise UserError(f"Expected at most {most / MB:,.0f} MB at {url}. Found more. If that is right, raise --max-gb.")
