"""A small web server on 127.0.0.1 that behaves, or misbehaves, as a test wants."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass
class Site:
    """What the server does; a test changes it between requests.

    Args:
        files: content by path; a value of type str is an HTML page.
        ranges: whether `Range` is answered.
        tell_length: whether `Content-Length` is told.
        cuts: for each coming answer, after how many bytes of its body the connection drops.
        errors: for each coming request, a status to answer instead.
        requests: path with query, and `Range` if any, of every request so far.
    """

    files: dict[str, bytes | str] = field(default_factory=dict)
    ranges: bool = True
    tell_length: bool = True
    cuts: list[int] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""

    def asked_ranges(self) -> list[str | None]:
        return [range_ for _, range_ in self.requests]


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    """Run a server for `site` on a free port."""
    handler = type("Handler", (_Handler,), {"site": site})
    with running(handler) as site.url:
        yield site


@contextmanager
def running(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Answer requests on a free port of 127.0.0.1; gives the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    site: Site

    def log_message(self, *_: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        site, asked = self.site, self.headers.get("Range")
        site.requests.append((self.path, asked))
        content = site.files.get(urlsplit(self.path).path)
        if site.errors:
            self.send_error(site.errors.pop(0))
        elif content is None:
            self.send_error(404)
        elif isinstance(content, str):
            self._send(200, content.encode(), kind="text/html; charset=utf-8")
        else:
            self._send_file(content, asked)

    def _send_file(self, content: bytes, asked: str | None) -> None:
        match = re.fullmatch(r"bytes=(\d+)-", asked or "")
        if match is None or not self.site.ranges:
            self._send(200, content)
        elif (start := int(match[1])) >= len(content):
            self.send_error(416)
        else:
            self._send(206, content[start:], span=f"bytes {start}-{len(content) - 1}/{len(content)}")

    def _send(self, status: int, body: bytes, kind: str = "application/octet-stream", span: str | None = None) -> None:
        site = self.site
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if site.tell_length:
            self.send_header("Content-Length", str(len(body)))
        if span:
            self.send_header("Content-Range", span)
        self.end_headers()
        self.wfile.write(body[: site.cuts.pop(0)] if site.cuts else body)
