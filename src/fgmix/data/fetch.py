"""Download a large file over HTTP: an interrupted transfer is resumed, and the file is either complete or absent.

Bytes are appended to `name.part`. If the server's file changes meanwhile, the result is a damaged archive, which its
digest or its own checksums show: `download` deletes it, and the next call downloads it again.

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
from urllib.parse import urlencode, urljoin, urlsplit

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


class _Broken(Exception):
    """A temporary error of the network or the server."""


def fetch(url: str, target: Path, *, most: int, progress: bool = True) -> Path:
    """Download the file at `url`, of at most `most` bytes, to `target`; an existing file is not changed."""
    if target.exists():
        return target
    part = target.with_name(f"{target.name}.part")
    furthest, fruitless = _size(part), 0
    while True:
        try:
            _transfer(url, part, most, progress)
            break
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
    os.replace(part, target)
    return target


def _transfer(url: str, part: Path, most: int, progress: bool) -> None:
    """Download the rest of the file over one connection; if it breaks, keep the bytes received and raise _Broken."""
    with _request_file(url, part) as response:
        start = _size(part) if response.status == 206 else 0  # else the server sends the whole file
        total = None if response.length is None else start + response.length
        if total is not None:
            _require_length(total, most, url)
            # images are hardly compressible: unpacked they take about as much again
            require_space(part.parent, 2 * total - start, f"{url} and what it holds")
        _write(response, part, start, total, most, progress)
    if total is not None and _size(part) < total:
        raise _Broken("the connection closed early")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _request_file(url: str, part: Path) -> HTTPResponse:
    """Request the file, and submit Google Drive's form if there is one."""
    for is_last in (False, True):
        response = _request(url, part)
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


def _request(url: str, part: Path) -> HTTPResponse:
    """Request what is missing of the file."""
    no_address = f"Expected an address http://… or https://…. Found {url!r}. For a file of your own use --archive."
    if urlsplit(url).scheme not in ("http", "https"):
        raise UserError(no_address)
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())  # Drive's form may set a cookie
    opener.addheaders = [("User-Agent", "fgmix")]
    try:
        with _network_errors():
            rest = {"Range": f"bytes={_size(part)}-"} if _size(part) else {}
            response: HTTPResponse = opener.open(urllib.request.Request(url, headers=rest), timeout=SILENCE)
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


def _write(response: HTTPResponse, part: Path, start: int, total: int | None, most: int, progress: bool) -> None:
    """Write the response to the part, from `start` on."""
    label = f"download {part.name.removesuffix('.part')}"
    bar = Progress(label, -(-(total or 0) // MB), "MB", done=start // MB, show=progress and total is not None)
    size = start
    try:
        with open(part, "ab" if start else "wb") as file, bar:
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
        raise machine_error(error, part, total) from error


def _require_length(size: int, most: int, url: str) -> None:
    if size > most:
        raise UserError(f"Expected at most {most / MB:,.0f} MB at {url}. Found more. If that is right, raise --max-gb.")
