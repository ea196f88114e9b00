"""The HTML report: the results of a folder of runs in one self-contained file.

The page contains its style and script and lists their hashes in its content policy: nothing else can run, and nothing
is fetched. Text from data reaches the page escaped, or as JSON that the script inserts as text.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from importlib.resources import files
from pathlib import Path

import fgmix
from fgmix.analysis.arrays import load_arrays
from fgmix.analysis.results import VARIANTS, grid_sensitivities, method_ranks, step_cost, variant_ablation
from fgmix.errors import UserError
from fgmix.files import make_folder, write_bytes
from fgmix.report.charts import Chart, as_data
from fgmix.report.figures import chart, differences
from fgmix.report.html import Html, data_block, element, join
from fgmix.report.runs import run_rows
from fgmix.report.tables import table_html
from fgmix.results.collect import Results
from fgmix.results.costs import ERM
from fgmix.results.report import all_tables, compared
from fgmix.results.selection import RULES, Rule, Selection, select
from fgmix.results.statistics import rank_methods
from fgmix.results.tables import Spread
from fgmix.runs.record import RECORD
from fgmix.sweeps.status import ORDER, Status, read_status

SCRIPTS = ("tables.js", "charts.js", "runs.js", "live.js")
GENERATOR = "fgmix report"


@dataclass(frozen=True)
class Choices:
    """How results are selected and shown.

    Args:
        rule: the selection rule.
        spread: what stands after ±.
        published: whether the paper's numbers stand beside ours.
    """

    rule: Rule = "training_domain"
    spread: Spread = "stderr"
    published: bool = False


@dataclass(frozen=True)
class Saved:
    """Figures that were found.

    Args:
        charts: those that could be read.
        notes: why others could not.
    """

    charts: tuple[Chart, ...] = ()
    notes: tuple[str, ...] = ()


def report_page(
    title: str,
    results: Results,
    choices: Choices = Choices(),  # noqa: B008 (frozen)
    *,
    source: str = "SWEEP",
    status: Status | None = None,
    figures: Saved = Saved(),  # noqa: B008 (frozen)
    made: str = "",
    live: bool = False,
) -> str:
    """The page as text.

    Args:
        title: heading of the page.
        results: what was run.
        choices: how to select and show it.
        source: the folder, for the commands that draw its figures as PDF and PNG.
        status: progress of the sweep, if it is one.
        figures: charts of arrays that were computed before.
        made: when and by which command.
        live: update while the sweep runs; only where the page is served.
    """
    groups = [(label, select(records, choices.rule)) for label, records in results.groups() if records]
    selection = dict(groups).get("")  # of the plain runs
    tables = all_tables(results, selection, rule=choices.rule, spread=choices.spread, published=choices.published)
    charts = _with_own_ids([*_result_charts(results, selection, choices, source), *figures.charts])
    rows = run_rows(results.all_records(), groups)
    style, script = _asset("page.css"), "\n".join(map(_asset, SCRIPTS))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="generator", content=f"{GENERATOR} {fgmix.__version__}"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(style, script, live)),
        element("title", title),
        element("style", Html(style)),
    )
    body = element(
        "body",
        _header(title, choices, made, bool(charts)),
        element(
            "main",
            _status(status),
            *map(_note, results.notes),
            _section("results", "Results", [table_html(table) for table in tables]),
            _section("figures", "Figures", [*map(_figure, charts), *map(_note, figures.notes)]),
            _runs(len(rows), choices.rule),
        ),
        data_block("charts", as_data(charts)),
        data_block("run-rows", rows),
        element("script", Html(script)),
        data_live=live,
        data_finished=str(_finished(status)) if live else None,
    )
    return f'<!doctype html>\n<html lang="en">{join([head, body])}</html>\n'


def _result_charts(results: Results, selection: Selection | None, choices: Choices, source: str) -> Iterator[Chart]:
    """Charts that need records only."""

    def command(kind: str, *, published: bool = False) -> str:
        words = ["fgmix", "plot", kind, source, "--selection", choices.rule]
        return shlex.join([*words, "--published"] if published else words)

    if selection is not None:
        comparisons = compared(selection)
        if any(comparison.interval for comparison in comparisons):
            yield differences("differences", comparisons, selection.labels)
        with suppress(UserError):  # too few methods or trials in common to rank
            yield chart("ranks", method_ranks(rank_methods(selection), selection.labels), command("cd"))
        for dataset in selection.domains:
            if len(_variants(selection, dataset)) > 2:
                arrays = variant_ablation(selection, dataset, spread=choices.spread, published=choices.published)
                yield chart(f"ablation-{dataset}", arrays, command("ablation", published=choices.published))
    for grid in results.grids:
        for sensitivity in grid_sensitivities(grid, rule=choices.rule, spread=choices.spread):
            yield chart("sensitivity", sensitivity, command("sensitivity"))
    if results.costs is not None and ERM in results.costs.milliseconds:
        yield chart("cost", step_cost(results.costs), shlex.join(["fgmix", "plot", "cost", source]))


def _variants(selection: Selection, dataset: str) -> set[str]:
    """The variants of FGMix, FGMix and ERM that a dataset has."""
    return {cell.algorithm for cell in selection.cells if cell.dataset == dataset} & set(VARIANTS)


def _with_own_ids(charts: Sequence[Chart]) -> list[Chart]:
    """The charts, numbered: files of one name remain different figures."""
    return [replace(each, id=f"{number}-{each.id}") for number, each in enumerate(charts, start=1)]


def saved_figures(folder: Path) -> Saved:
    """Charts of the arrays that `fgmix plot --out FOLDER/figures` wrote, from any folder called figures."""
    found = []
    for place, folders, names in os.walk(folder):
        if RECORD in names:
            folders.clear()
        elif Path(place).name == "figures":
            # A hidden file belongs to a figure that is still being computed.
            found += [Path(place, name) for name in names if name.endswith(".npz") and not name.startswith(".")]
    charts, notes = [], []
    for path in sorted(found):
        try:
            charts.append(chart(path.stem, load_arrays(path), shlex.join(["fgmix", "plot", "redraw", str(path)])))
        except UserError as error:
            notes.append(str(error))
    return Saved(tuple(charts), tuple(notes))


def write_report(folder: Path, results: Results, choices: Choices, out: Path | None = None, title: str = "") -> Path:
    """Write the report of a folder, and return its path.

    Args:
        folder: the folder of runs; figures are taken from the folders called figures below it.
        results: what it holds.
        choices: how to select and show it.
        out: the file; by default report.html in the folder.
        title: heading of the page; by default the folder's name.
    """
    path = out or folder / "report.html"
    if path.is_dir():
        path = path / "report.html"
    text = report_page(
        title or folder.resolve().name,
        results,
        choices,
        source=str(folder),
        status=_status_of(folder),
        figures=saved_figures(folder),
        made=f"Made by fgmix {fgmix.__version__} on {date.today().isoformat()} from {folder}.",
    )
    _write(path, text)
    return path


def _status_of(folder: Path) -> Status | None:
    """Progress of the sweeps on a folder; None if it is not a sweep's folder."""
    try:
        return read_status(folder)
    except UserError:
        return None


def _write(path: Path, text: str) -> None:
    """Write the page, but not over a file that fgmix did not write."""
    if os.path.lexists(path) and f'content="{GENERATOR}'.encode() not in _start(path):
        raise UserError(
            f"Expected a report of fgmix or no file at {path}. Found another file. Choose another path with --out."
        )
    make_folder(path.parent)
    # The name of a folder may hold bytes that are not valid text: they are shown as escapes.
    write_bytes(path, text.encode(errors="backslashreplace"))


def _start(path: Path) -> bytes:
    """The first bytes of a file; of a pipe or a device, none."""
    if not os.path.isfile(path):
        return b""
    with open(path, "rb") as file:
        return file.read(2000)


def _asset(name: str) -> str:
    return files("fgmix.report").joinpath("assets", name).read_text(encoding="utf-8")


def _policy(style: str, script: str, live: bool) -> str:
    """Only this style and this script, images within the page, and no network except the server of a live report."""
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _header(title: str, choices: Choices, made: str, figures: bool) -> Html:
    links = [("#results", "Results"), *([("#figures", "Figures")] if figures else []), ("#runs", "Runs")]
    return element(
        "header",
        element("h1", title),
        element("p", f"Model selection: {RULES[choices.rule]}. {made}", class_="caption"),
        element("nav", [element("a", text, href=href) for href, text in links]),
    )


def _status(status: Status | None) -> Html:
    """Counts and failures of a sweep; the script updates the counts while the sweep runs."""
    if status is None:
        return Html("")
    counts = [element("span", f"{status.counts[state]} {state}", class_=f"state {state}") for state in ORDER]
    failures = [element("li", f"{name}: {error}") for name, error in status.errors.items()]
    return element(
        "section",
        element("p", counts, id="counts"),
        element("p", *status.lines()[1:2] if status.left else "", id="time-left", class_="caption"),
        element("details", element("summary", f"{len(failures)} failed runs"), element("ul", failures))
        if failures
        else "",
        id="status",
    )


def _finished(status: Status | None) -> int:
    """Number of runs that will not change; the script reloads the page when there are more."""
    return 0 if status is None else sum(status.counts[state] for state in ("done", "diverged", "failed"))


def _note(text: str) -> Html:
    return element("p", text, class_="caption")


def _section(id: str, title: str, content: Sequence[Html]) -> Html:
    if not content:
        return Html("") if id != "results" else element("section", element("p", "No run has finished yet."), id=id)
    return element("section", element("h2", title), content, id=id)


def _figure(drawn: Chart) -> Html:
    how = element("p", "As PDF and PNG: ", element("code", drawn.command), class_="caption") if drawn.command else ""
    return element(
        "figure",
        element("figcaption", element("h3", drawn.title), element("p", drawn.caption, class_="caption")),
        element("div", element("noscript", "This figure needs JavaScript."), class_="drawing"),
        how,
        id=f"figure-{drawn.id}",
        class_="chart",
    )


def _runs(count: int, rule: Rule) -> Html:
    about = (
        f"{count} finished. Open a run for its spec, its curves and the command that makes it again. Accuracy is on "
        f"the test domain. Model selection: {RULES[rule]} for reported runs, {RULES['training_domain']} for others. A "
        "printout contains only the rows that are shown."
    )
    return element(
        "section",
        element("h2", "Runs"),
        element("p", about, class_="caption"),
        element("div", element("noscript", "The list of runs needs JavaScript."), id="run-list"),
        id="runs",
    )
