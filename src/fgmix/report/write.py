"""Write the HTML report to a file, with saved figures and the status of the sweep."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import fgmix
from fgmix.errors import UserError
from fgmix.figures.kinds import describe, load_arrays
from fgmix.records.files import check_path, make_folder, write_bytes
from fgmix.records.schema import RunRecord
from fgmix.records.status import Status, read_status
from fgmix.records.store import RECORD
from fgmix.report.page import GENERATOR, Frame, Saved, Sources, render_page
from fgmix.results.report import Choices
from fgmix.results.runs import Runs, as_runs


def write_report(
    runs: Runs | RunRecord | Iterable[RunRecord],
    out: str | os.PathLike[str] | None = None,
    *,
    title: str = "",
    **shown: Any,
) -> Path:
    """Write the HTML report, and return its path. Figures are taken from the folders called figures below the runs'.

    Args:
        runs: finished runs, as `read_runs` returns them, or records.
        out: the file, or its folder; by default report.html in the first folder of the runs.
        title: heading of the page; by default the names of the folders.
        shown: how results are selected and shown: the other arguments of `tabulate`.
    """
    runs = as_runs(runs)
    places = [*runs.folders, *runs.from_domainbed]
    if out is None and not places:
        raise UserError(
            "Expected a path for the report of runs that were not read from a folder. Found none. Give out."
        )
    path = check_path("out", out) if out is not None else places[0].parent if places[0].is_file() else places[0]
    if path.is_dir():
        path = path / "report.html"
    frame = Frame(
        title or ", ".join(folder.resolve().name for folder in places) or "Runs",
        f"Made by fgmix {fgmix.__version__} on {date.today().isoformat()} from {', '.join(map(str, places))}.",
        Sources(tuple(map(str, runs.folders)), tuple(map(str, runs.from_domainbed))),
        _read_sweep_status(places[0], runs) if len(places) == 1 else None,
        load_figures(*places),
    )
    _write_page(path, render_page(frame, runs, Choices(**shown)))
    return path


def load_figures(*folders: Path) -> Saved:
    """Describe the arrays that `fgmix plot --out FOLDER/figures` wrote, in any folder called figures."""
    charts, notes = [], []
    for path in (path for folder in folders for path in sorted(_find_figures(folder))):
        try:
            charts.append(describe(load_arrays(path), path.stem, shlex.join(["fgmix", "plot", "results", str(path)])))
        except UserError as error:
            notes.append(str(error))
    return Saved(tuple(charts), tuple(notes))


def _find_figures(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        # A folder with a record is a run: skipping 20,000 of them saves half a second.
        folders[:] = [name for name in folders if not os.path.lexists(f"{place}/{name}/{RECORD}")]
        if os.path.basename(place) == "figures":
            # A hidden file is one that is being written.
            yield from (Path(place, name) for name in names if name.endswith(".npz") and not name.startswith("."))


def _read_sweep_status(folder: Path, runs: Runs) -> Status | None:
    """Read the status of the sweeps in a folder; None if it has none. Runs with a record are not read again."""
    places = {record.folder: record.status for record in runs.all_records() if record.folder}
    finished = {place.name: status for place, status in places.items() if place.parent == folder}
    try:
        return read_status(folder, Status(finished, {}, {}))
    except UserError:
        return None


def _write_page(path: Path, text: str) -> None:
    """Write the page, but not over a file that fgmix did not write."""
    if os.path.lexists(path) and f'content="{GENERATOR}'.encode() not in _read_start(path):
        raise UserError(
            f"Expected a report of fgmix or no file at {path}. Found another file. Choose another path with --out."
        )
    make_folder(path.parent)
    # Names of folders may contain bytes that are not valid text, which are shown as escapes.
    write_bytes(path, text.encode(errors="backslashreplace"))


def _read_start(path: Path) -> bytes:
    """Read the first bytes of a file; of a pipe or a device, none."""
    if not os.path.isfile(path):
        return b""
    with open(path, "rb") as file:
        return file.read(2000)
