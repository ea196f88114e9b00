"""The report of a running sweep or run on a local web server, updated with new results."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fgmix.errors import UserError
from fgmix.records.schema import RunRecord
from fgmix.records.status import ORDER, Status, read_status
from fgmix.records.store import RunFolder
from fgmix.report.choices import Choices
from fgmix.report.page import Sources, report_page
from fgmix.report.saved import saved_figures
from fgmix.report.underway import underway_charts
from fgmix.results.collect import NothingFinished, Results, collect

HOST = "127.0.0.1"  # this machine only


@dataclass
class Followed:
    """A folder whose sweep or run may still be training. Finished runs do not change, so each is read once.

    Args:
        folder: of the sweep, or of a run of `fgmix train`.
        choices: how to select and show.
        title: heading of the page; by default the folder's name.
    """

    folder: Path
    choices: Choices = field(default_factory=Choices)
    title: str = ""
    _known: dict[Path, RunRecord] = field(default_factory=dict)
    _status: Status | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def page(self) -> str:
        """The current page."""
        with self._lock:
            status = self._look()
            return report_page(
                self.title or self.folder.resolve().name,
                self._results(),
                self.choices,
                sources=Sources((str(self.folder),)),
                status=status,
                figures=saved_figures(self.folder),
                underway=underway_charts(status.unfinished()),
                made=f"Served from {self.folder}.",
                live=True,
                version=_version(status),
            )

    def status(self) -> dict[str, Any]:
        """Counts and time left, in JSON types."""
        with self._lock:
            now = self._look()
        return {
            "counts": {state: now.counts[state] for state in ORDER},
            "left": now.left,
            "time_left": " ".join(now.lines()[1:2]) if now.left else "",
            "version": _version(now),
        }

    def _look(self) -> Status:
        self._status = read_status(self.folder, self._status)
        return self._status

    def _results(self) -> Results:
        try:
            return collect(self.folder, known=self._known)
        except NothingFinished:
            return Results([])


def _version(status: Status) -> str:
    """A text that changes when a run ends or is evaluated."""
    ended = sum(status.counts[state] for state in ("done", "diverged", "failed"))
    files = (RunFolder(folder).metrics for folder in status.unfinished())
    return f"{ended}-{sum(file.stat().st_size for file in files if file.exists())}"


def make_server(followed: Followed, port: int) -> ThreadingHTTPServer:
    """A server of the page at / and of the counts at /status.json; call its `serve_forever`.

    Args:
        followed: the folder.
        port: 0 for any free port.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # Another site could make a browser send requests here under that site's host name: reject them.
            if self.headers.get("Host", "").partition(":")[0] not in (HOST, "localhost"):
                self._answer(
                    403, "text/plain", b"Expected a request to 127.0.0.1 or localhost. Found another host name."
                )
            elif self.path == "/":
                self._made("text/html", followed.page)
            elif self.path == "/status.json":
                self._made("application/json", lambda: json.dumps(followed.status()))
            else:
                self._answer(404, "text/plain", b"Expected / or /status.json. Found another path.")

        def _made(self, kind: str, make: Callable[[], str]) -> None:
            """Send what `make` returns, or its error message."""
            try:
                self._answer(200, kind, make().encode(errors="backslashreplace"))
            except UserError as error:
                self._answer(500, "text/plain", str(error).encode(errors="backslashreplace"))

        def _answer(self, code: int, kind: str, content: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """No log: the page sends a request every three seconds."""

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise UserError(
            f"Expected a free port at {HOST}. Found port {port} in use ({error.strerror}). Choose another --port."
        ) from error
