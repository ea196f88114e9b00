"""The report of a running sweep or run on a local web server, updated with new runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fgmix.errors import UnknownName, UserError
from fgmix.figures.curves import collect_curves, describe_curves
from fgmix.figures.description import Chart
from fgmix.records.evaluations import Evaluations
from fgmix.records.files import read_json
from fgmix.records.schema import ResolvedSpec, RunRecord, to_spec
from fgmix.records.status import ORDER, Status, read_status
from fgmix.records.store import RunFolder
from fgmix.report.page import Frame, load_figures, render_page
from fgmix.results.read import NothingFinished, read_runs
from fgmix.results.report import Choices
from fgmix.results.runs import Runs

HOST = "127.0.0.1"  # this machine only
SHOWN = 6  # unfinished runs whose curves are shown


@dataclass
class Followed:
    """A folder whose sweep or run may still be training. Finished runs do not change, so each is read once."""

    folder: Path  # of the sweep, or of a run of `fgmix train`
    choices: Choices = field(default_factory=Choices)  # how to select and show
    title: str = ""  # heading of the page; by default the folder's name
    only: Mapping[str, Any] = field(default_factory=dict)  # which runs to report: arguments of `read_runs`
    _known: dict[Path, RunRecord] = field(default_factory=dict)
    _status: Status | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def page(self) -> str:
        """Render the current page."""
        with self._lock:
            status = self._read()
            frame = Frame(
                self.title or self.folder.resolve().name,
                f"Served from {self.folder}.",
                status,
                *load_figures(self.folder),
                describe_underway(status.unfinished()),
                live=True,
                version=_write_version(status),
            )
            return render_page(frame, self._read_runs(), self.choices)

    def status(self) -> dict[str, Any]:
        """Return counts and time left, in JSON types."""
        with self._lock:
            now = self._read()
        return {
            "counts": {state: now.counts[state] for state in ORDER},
            "left": now.left,
            "time_left": " ".join(now.lines()[1:2]) if now.left else "",
            "version": _write_version(now),
        }

    def _read(self) -> Status:
        self._status = read_status(self.folder, self._status)
        return self._status

    def _read_runs(self) -> Runs:
        try:
            return read_runs(self.folder, known=self._known, **self.only)
        except NothingFinished:
            return Runs([])
        except UnknownName as error:  # of a run that may finish later
            return Runs([], notes=(str(error),))


def _write_version(status: Status) -> str:
    """Write a text that changes when a run ends or is evaluated."""
    ended = sum(status.counts[state] for state in ("done", "diverged", "failed"))
    files = (RunFolder(folder).metrics for folder in status.unfinished())
    return f"{ended}-{sum(file.stat().st_size for file in files if file.exists())}"


def describe_underway(folders: Iterable[Path]) -> list[Chart]:
    """Describe the curves of the first few unfinished runs that have been evaluated."""
    charts = []
    for record in [record for record in map(read_unfinished, folders) if record is not None][:SHOWN]:
        chart = describe_curves(collect_curves(record))
        title = f"{chart.title}: step {record.evaluations[-1].step} of {record.spec.steps}"
        charts.append(replace(chart, id=f"underway-{record.folder.name if record.folder else ''}", title=title))
    return charts


def read_unfinished(folder: Path) -> RunRecord | None:
    """Read the record of an unfinished run up to its last evaluation; None without one, or if it cannot be read now."""
    files = RunFolder(folder)
    try:
        evaluations = files.evaluations()
        if not evaluations:
            return None
        made = read_json(files.spec)
        domains = tuple(evaluations[0].accuracy["raw"])
        return RunRecord(
            spec=to_spec(made["spec"], ResolvedSpec),
            status="done",
            fgmix_version=str(made["fgmix"]),
            domains=domains,
            evaluations=Evaluations(evaluations),
            folder=folder,
        )
    except (UserError, KeyError, TypeError, ValueError):  # a line is being written: it is complete at the next request
        return None


def make_server(followed: Followed, port: int) -> ThreadingHTTPServer:
    """Make a server of the page at / and of the counts at /status.json, at any free port for 0; call its
    `serve_forever`."""

    pages: dict[str, tuple[str, Callable[[], str]]] = {
        "/": ("text/html", followed.page),
        "/status.json": ("application/json", lambda: json.dumps(followed.status())),
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # Another site could make a browser send requests here under that site's host name: reject them.
            if self.headers.get("Host", "").partition(":")[0] not in (HOST, "localhost"):
                self._answer(403, "Expected a request to 127.0.0.1 or localhost. Found another host name.")
            elif self.path not in pages:
                self._answer(404, "Expected / or /status.json. Found another path.")
            else:
                kind, make = pages[self.path]
                try:
                    self._answer(200, make(), kind)
                except UserError as error:
                    self._answer(500, str(error))

        def _answer(self, code: int, text: str, kind: str = "text/plain") -> None:
            content = text.encode(errors="backslashreplace")
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
        raise UserError(f"Cannot listen on port {port} of {HOST}: {error.strerror}. Try --port 0.") from error


def serve_folders(folders: Sequence[Path], choices: Choices, port: int, title: str, only: Mapping[str, Any]) -> None:
    """Serve the report of one folder until interrupted, and print its address."""
    if len(folders) != 1:
        raise UserError(f"--serve follows one folder. You named {len(folders)}.")
    if folders[0].is_file():
        raise UserError(f"Expected a folder with --serve. Found the file {folders[0]}. Use --format html.")
    followed = Followed(folders[0], choices, title, only)
    followed.status()  # an error about the folder comes before the address
    with make_server(followed, port) as server:
        print(f"http://{server.server_address[0]!s}:{server.server_address[1]} (stop with Ctrl-C)", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
