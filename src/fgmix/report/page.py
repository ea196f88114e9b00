"""The HTML report: the results of a folder of runs in one self-contained file.

`templates/page.html` has its text. The page contains its style and script and lists their hashes in its content policy:
nothing else can run, and nothing is fetched. Text from data reaches the page escaped, or as JSON that the script
inserts as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

import fgmix
from fgmix.errors import UserError
from fgmix.figures.arrays import Findings
from fgmix.figures.description import Chart, encode
from fgmix.figures.differences import Differences, collect_ranks
from fgmix.figures.kinds import collect_figures, describe, load_arrays
from fgmix.records.files import check_path, make_folder, write_bytes
from fgmix.records.schema import RunRecord
from fgmix.records.status import ORDER, Status, read_status
from fgmix.records.store import PACKED, RECORD
from fgmix.report.runs import list_runs
from fgmix.report.summary import write_headlines
from fgmix.results.differences import DIFFERENCES, mark_differences, mark_significant
from fgmix.results.formats import footnotes, latex
from fgmix.results.published import AVERAGE
from fgmix.results.ranks import RANKS
from fgmix.results.report import Choices, all_tables, compare_all, rankings
from fgmix.results.rounding import typeset
from fgmix.results.runs import Runs, as_runs
from fgmix.results.selection import RULES, Selection, select
from fgmix.results.statistics import BASELINE
from fgmix.results.tables import OVERALL, Table

SCRIPTS = ("tables.js", "charts.js", "runs.js", "live.js")
GENERATOR = "fgmix report"
Unit = tuple[Table | None, Chart | None]  # shown side by side


@dataclass(frozen=True)
class Frame:
    """What stands around the runs."""

    title: str  # heading of the page
    origin: str = ""  # a sentence on the origin of the page
    status: Status | None = None  # progress of the sweep, if it is one
    figures: Sequence[Chart] = ()  # that `fgmix plot` saved
    notes: Sequence[str] = ()  # errors of saved figures that could not be read
    underway: Sequence[Chart] = ()  # curves of unfinished runs
    live: bool = False  # update while the sweep runs; for a served page
    version: str = ""  # of the content; a served page reloads when the server's version changes


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
        title or ", ".join(folder.resolve().name.removesuffix(PACKED) for folder in places) or "Runs",
        f"Made by fgmix {fgmix.__version__} on {date.today().isoformat()} from {', '.join(map(str, places))}.",
        _read_sweep_status(places[0], runs) if len(places) == 1 else None,
        *load_figures(*places),
    )
    _write_page(path, render_page(frame, runs, Choices(**shown)))
    return path


def load_figures(*folders: Path) -> tuple[list[Chart], list[str]]:
    """Describe the arrays that `fgmix plot --out FOLDER/figures` wrote, in any folder called figures, with errors."""
    charts, notes = [], []
    for path in (path for folder in folders for path in sorted(_find_figures(folder))):
        try:
            charts.append(describe(load_arrays(path), path.stem, shlex.join(["fgmix", "plot", "results", str(path)])))
        except UserError as error:
            notes.append(str(error))
    return charts, notes


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
    if os.path.lexists(path) and not (path.is_file() and f'content="{GENERATOR}'.encode() in path.read_bytes()[:2000]):
        raise UserError(
            f"Expected a report of fgmix or no file at {path}. Found another file. Choose another path with --out."
        )
    make_folder(path.parent)
    # Names of folders may contain bytes that are not valid text, which are shown as escapes.
    write_bytes(path, text.encode(errors="backslashreplace"))


def render_page(frame: Frame, runs: Runs, choices: Choices = Choices()) -> str:  # noqa: B008 (frozen)
    """Render the results of finished runs, selected and shown as chosen, as the text of a page."""
    groups = [(label, select(records, choices.rule, runs.test_domains)) for label, records in runs.groups() if records]
    selection = dict(groups).get("")  # of runs outside of grids
    tables = all_tables(runs, selection, choices)
    figures = list(_describe_figures(Findings(runs, selection or select([]), choices)))
    own = {title: chart for title, chart in figures if title}
    own |= {} if selection is None else dict(_describe_ranks(runs, selection, choices))
    alone = [chart for title, chart in figures if not title]
    new = _drop_repeated(frame.figures, [*own.values(), *alone])
    every = [*own.values(), *frame.underway, *alone, *new]
    # Unique ids, also for files of the same name
    charts = [replace(each, id=f"{number}-{each.id}") for number, each in enumerate(every, start=1)]
    beside, others = dict(zip(own, charts)), charts[len(own) :]
    finished = runs.all_records()
    units = _pair_units(_mark_results(tables, selection, choices), beside)
    headlines = [] if selection is None else write_headlines(selection, runs.records, choices)
    style, script = _read_asset("page.css"), "\n".join(map(_read_asset, SCRIPTS))
    return _load_template().render(
        frame=frame,
        generator=f"{GENERATOR} {fgmix.__version__}",
        policy=_write_policy(style, script, frame.live),
        style=style,
        script=script,
        headlines=headlines,
        origin=" ".join(filter(None, (f"Model selection: {RULES[choices.rule]}." if headlines else "", frame.origin))),
        states=ORDER,
        notes=runs.notes,
        training=others[: len(frame.underway)],
        units=units,
        latex=[latex(table) for table, _ in units if table],
        saved=others[len(frame.underway) :],
        finished=len(finished),
        rule=choices.rule,
        rules=RULES,
        charts=encode(charts),
        rows=list_runs(finished, groups),
        average=AVERAGE,
    )


@cache
def _load_template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fgmix.report"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        "anchor": lambda words: re.sub(r"\W+", "-", " ".join(words)).strip("-"),
        "footnotes": footnotes,
        "json": write_json_block,
        "pack": pack_block,
        "sort_key": lambda value: repr(float(value)),
        "typeset": typeset,
    }
    environment.filters |= filters
    return environment.get_template("page.html")


def write_json_block(content: Any) -> Markup:
    """Write JSON for a block that the scripts of the page read; no text in it can end the block.

    >>> print(write_json_block(["</script>"]))
    ["\\u003c/script>"]
    """
    return Markup(_write_json(content).replace("<", "\\u003c"))


def pack_block(content: Any) -> Markup:
    """Compress JSON for a block that the script of the page unpacks: for data that grow with the number of runs.

    >>> print(pack_block([]))
    eJyLjgUAARUAuQ==
    """
    packed = zlib.compress(_write_json(content).encode(errors="backslashreplace"))
    return Markup(base64.b64encode(packed).decode())


def _write_json(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _write_command(runs: Runs, kind: str, *options: str) -> str:
    """Write the command that draws a figure of these runs on paper."""
    theirs = [word for folder in runs.from_domainbed for word in ("--from-domainbed", folder)]
    return shlex.join(map(str, ["fgmix", "plot", kind, *(runs.folders or ["SWEEP"]), *theirs, *options]))


def _describe_ranks(runs: Runs, selection: Selection, choices: Choices) -> Iterator[tuple[str, Chart]]:
    """Describe ranks, each with the title of their table."""
    with suppress(UserError):  # too few algorithms or trials in common to rank
        for title, ranking in rankings(selection).items():
            of = () if title == RANKS else ("--dataset", title.removeprefix(f"{RANKS}, "))
            command = _write_command(runs, "cd", *of, "--selection", choices.rule)
            yield title, replace(describe(collect_ranks(ranking, selection.labels), "ranks", command), title=title)


def _describe_figures(findings: Findings) -> Iterator[tuple[str, Chart]]:
    """Describe the figures of `fgmix plot results`, each with the title of the table beside it; empty for none."""
    choices = findings.choices
    options = ("--selection", choices.rule, *(("--published",) if choices.published else ()))
    for kind, name, arrays in collect_figures(findings):
        against = ("--baseline", choices.baseline) if kind == "differences" and choices.baseline != BASELINE else ()
        command = _write_command(findings.runs, "results", "--kind", kind, *options, *against)
        chart = describe(arrays, name, command)
        beside = arrays.dataset or OVERALL if isinstance(arrays, Differences) else ""
        yield chart.title if kind == "sensitivity" else beside, chart


def _drop_repeated(charts: Sequence[Chart], shown: Iterable[Chart]) -> list[Chart]:
    """Return the charts whose content is not yet on the page, each once."""
    known = {json.dumps(encode(each.panels)) for each in shown}
    kept = []
    for each in charts:
        content = json.dumps(encode(each.panels))
        if content not in known:
            kept.append(each)
        known.add(content)
    return kept


def _mark_results(tables: Sequence[Table], selection: Selection | None, choices: Choices) -> list[Table]:
    """Mark significant rows, and replace the results in the table of differences by marks."""
    if selection is None:
        return list(tables)
    compared = compare_all(selection, choices.baseline, choices.margin)
    marked = []
    for table in tables:
        if table.title.startswith(DIFFERENCES):
            marked.append(mark_differences(table, [*compared.values()][-1]))
        elif table.dataset in compared and (table.dataset or table.title == OVERALL):
            marked.append(mark_significant(table, compared[table.dataset]))
        else:
            marked.append(table)
    return marked


def _pair_units(tables: Sequence[Table], charts: Mapping[str, Chart]) -> list[Unit]:
    """Pair tables with their figures; the figure of the ranks replaces their table.

    The ranks are shown beside the significance tests; figures of the differences, beside the accuracies.
    """
    ranks = [chart for title, chart in charts.items() if title.startswith(RANKS)]
    units: list[Unit] = []
    for table in tables:
        if table.title.startswith(RANKS) and table.title in charts:
            continue
        if table.title.startswith(DIFFERENCES):
            units.append((replace(table, title="Significance tests"), ranks.pop(0) if ranks else None))
        else:
            units.append((table, charts.get(table.title)))
    return [*units, *((None, chart) for chart in ranks)]


def _read_asset(name: str) -> str:
    return files("fgmix.report").joinpath("assets", name).read_text(encoding="utf-8")


def _write_policy(style: str, script: str, live: bool) -> str:
    """Allow only this style and this script, images within the page, and no network except a live report's server."""
    digests = [hashlib.sha256(text.encode()).digest() for text in (style, script)]
    own_style, own_script = (f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; img-src data:; style-src {own_style}; script-src {own_script}; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
