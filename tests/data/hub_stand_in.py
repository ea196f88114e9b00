"""A stand-in of the Hugging Face hub on 127.0.0.1: the two routes that a download of a dataset uses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

from data.http_site import running

COMMIT = "0" * 40


@dataclass
class Hub:
    """Args: repository: its only dataset; files: by path; downloads: paths of the files that were sent, so far."""

    repository: str
    files: dict[str, bytes]
    url: str = ""
    downloads: list[str] = field(default_factory=list)


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Run the hub on a free port."""
    with running(type("Handler", (_Handler,), {"hub": hub})) as hub.url:
        yield hub


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        tree = f"/api/datasets/{self.hub.repository}/tree/main"
        start = f"/datasets/{self.hub.repository}/resolve/main/"
        if path == tree:
            entries = [
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for name, content in self.hub.files.items()
            ]
            self._send(json.dumps(entries).encode(), "application/json")
        elif path.startswith(start) and (name := path.removeprefix(start)) in self.hub.files:
            if self.command == "GET":
                self.hub.downloads.append(name)
            self._send(self.hub.files[name], "application/octet-stream")
        else:
            self.send_error(404)

    def _send(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        for header, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(content))),
            ("ETag", f'"{hashlib.sha256(content).hexdigest()}"'),
            ("X-Repo-Commit", COMMIT),
        ):
            self.send_header(header, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing: tests read what is printed."""
