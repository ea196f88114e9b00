"""The page: everything of a folder of runs in one HTML file.

The page brings its own style and script and names them by their hashes in its content policy: nothing else can run,
and nothing is fetched. Text from data reaches the page escaped, or as JSON that the script puts in as text.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from pathlib import Path

import fgmix
from fgmix.analysis.arrays import load_arrays
from fgmix.analysis.results import VARIANTS, grid_sensitivities, method_ranks, step_cost, variant_ablation
from fgmix.benchmark.labels import method_label
from fgmix.benchmark.reporting import Results, all_tables, compared
from fgmix.benchmark.selection import RULES, Method, Rule, Selection, select
from fgmix.benchmark.statistics import rank_methods
from fgmix.benchmark.status import ORDER, Status, read_status
from fgmix.benchmark.tables import Spread
from fgmix.errors import UserError
from fgmix.files import make_folder, write_atomically
from fgmix.report.charts import Chart, as_data
from fgmix.report.figures import chart, differences
from fgmix.report.html import Html, data_block, element, join
from fgmix.report.runs import run_rows
from fgmix.report.tables import table_html

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


def report_page(
    title: str,
    results: Results,
    choices: Choices = Choices(),  # noqa: B008 (frozen)
    *,
    status: Status | None = None,
    figures: Sequence[Chart] = (),
    made: str = "",
    live: bool = False,
) -> str:
    """The page as text.

    Args:
        title: the page's heading.
        results: what was run.
        choices: how to select and show it.
        status: where the sweep stands, if it is one.
        figures: charts of arrays that were computed before.
        made: when and by which command.
        live: follow the sweep; only where the page is served.
    """
    selection = select(results.records, choices.rule) if results.records else None
    tables = all_tables(results, selection, rule=choices.rule, spread=choices.spread, published=choices.published)
    charts = [*_result_charts(results, selection, choices), *figures]
    selections = [select(records, choices.rule) for _, records in results.groups() if records]
    rows = run_rows(results.all_records(), selections)
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
            _section("results", "Results", map(table_html, tables)),
            _section("figures", "Figures", map(_figure, charts)),
            _runs(len(rows)),
        ),
        data_block("charts", as_data(charts)),
        data_block("run-rows", rows),
        element("script", Html(script)),
        data_live=live,
    )
    return f'<!doctype html>\n<html lang="en">{join([head, body])}</html>\n'


def _result_charts(results: Results, selection: Selection | None, choices: Choices) -> Iterator[Chart]:
    """Charts that need records alone."""
    if selection is not None:
        comparisons = compared(selection)
        if any(comparison.interval for comparison in comparisons):
            labels = [method_label(*comparison.method) for comparison in comparisons]
            yield differences("differences", comparisons, labels)
        with suppress(UserError):  # too little may be shared to rank
            yield chart("ranks", method_ranks(rank_methods(selection)), "fgmix plot cd")
        algorithms = {method.algorithm for method in selection.methods()}
        if len(algorithms & set(VARIANTS)) > 2:
            for dataset in selection.domains:
                arrays = variant_ablation(selection, dataset, spread=choices.spread, published=choices.published)
                yield chart(f"ablation-{dataset}", arrays, "fgmix plot ablation")
    for number, grid in enumerate(results.grids):
        for place, sensitivity in enumerate(grid_sensitivities(grid, rule=choices.rule, spread=choices.spread)):
            yield chart(f"sensitivity-{number}-{place}", sensitivity, "fgmix plot sensitivity")
    if results.step_milliseconds is not None and "erm" in results.step_milliseconds:
        times = {Method(name): time for name, time in results.step_milliseconds.items()}
        yield chart("cost", step_cost(times), "fgmix plot cost")


def saved_figures(folder: Path) -> list[Chart]:
    """Charts of the arrays that `fgmix plot --out FOLDER/figures` left in any folder called figures."""
    found = []
    for place, folders, names in os.walk(folder):
        if "record.json" in names:
            folders.clear()
        elif Path(place).name == "figures":
            found += [Path(place, name) for name in names if name.endswith(".npz")]
    return [
        chart(path.stem, load_arrays(path), f"fgmix plot redraw {shlex.quote(str(path))}") for path in sorted(found)
    ]


def write_report(folder: Path, results: Results, choices: Choices, out: Path | None = None, title: str = "") -> Path:
    """Write the page of a folder, and return where it is.

    Args:
        folder: the folder of runs; figures are taken from the folders called figures below it.
        results: what it holds.
        choices: how to select and show it.
        out: the file; by default report.html in the folder.
        title: the page's heading; by default the folder's name.
    """
    path = out or folder / "report.html"
    text = report_page(
        title or folder.resolve().name,
        results,
        choices,
        status=_status_of(folder),
        figures=saved_figures(folder),
        made=f"Made by fgmix {fgmix.__version__} on {date.today().isoformat()} from {folder}.",
    )
    _write(path, text)
    return path


def _status_of(folder: Path) -> Status | None:
    """Where the sweeps on a folder stand; None if it is not a sweep's folder."""
    try:
        return read_status(folder)
    except UserError:
        return None


def _write(path: Path, text: str) -> None:
    """Write the page, but never over a file that is not one of ours."""
    if path.exists() and f'content="{GENERATOR}'.encode() not in path.read_bytes()[:2000]:
        raise UserError(f"Expected to write the report to {path}. Found another file there. Choose another --out.")
    make_folder(path.parent)
    write_atomically(path, lambda file: file.write(text.encode()))


def _asset(name: str) -> str:
    return files("fgmix.report").joinpath("assets", name).read_text(encoding="utf-8")


def _policy(style: str, script: str, live: bool) -> str:
    """Only this style and this script, pictures within the page, and no network but the server that follows a sweep."""
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
        element("p", f"Selected by {RULES[choices.rule]}. {made}", class_="caption"),
        element("nav", [element("a", text, href=href) for href, text in links]),
    )


def _status(status: Status | None) -> Html:
    """Counts and failures of a sweep; the script refills the first line while a sweep is followed."""
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


def _section(id: str, title: str, parts: Iterator[Html]) -> Html:
    content = list(parts)
    if not content:
        return Html("") if id != "results" else element("section", element("p", "No run has finished yet."), id=id)
    return element("section", element("h2", title), content, id=id)


def _figure(drawn: Chart) -> Html:
    how = element("p", "For a paper: ", element("code", drawn.command), class_="caption") if drawn.command else ""
    return element(
        "figure",
        element("figcaption", element("h3", drawn.title), element("p", drawn.caption, class_="caption")),
        element("div", element("noscript", "This figure is drawn by the page's script."), class_="drawing"),
        how,
        id=f"figure-{drawn.id}",
        class_="chart",
    )


def _runs(count: int) -> Html:
    return element(
        "section",
        element("h2", "Runs"),
        element("p", f"{count} finished. Open one for its spec, its curves and its command.", class_="caption"),
        element("div", element("noscript", "The list of runs is drawn by the page's script."), id="run-list"),
        id="runs",
    )
