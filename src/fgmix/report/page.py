"""The HTML report: the results of a folder of runs in one self-contained file.

The page contains its style and script and lists their hashes in its content policy: nothing else can run, and nothing
is fetched. Text from data reaches the page escaped, or as JSON that the script inserts as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.resources import files

import fgmix
from fgmix.errors import UserError
from fgmix.figures.ablation import collect_ablation, find_variants
from fgmix.figures.cd import collect_ranks
from fgmix.figures.cost import collect_cost
from fgmix.figures.description import Chart, encode
from fgmix.figures.differences import describe_differences
from fgmix.figures.kinds import describe
from fgmix.figures.sensitivity import collect_sensitivities
from fgmix.records.status import ORDER, Status
from fgmix.report.choices import Choices
from fgmix.report.html import Html, data_block, element, join, packed_block
from fgmix.report.runs import run_rows
from fgmix.report.saved import Saved
from fgmix.report.summary import headlines
from fgmix.report.tables import table_html
from fgmix.results.collect import Results
from fgmix.results.costs import COST, ERM
from fgmix.results.differences import DIFFERENCES
from fgmix.results.ranks import RANKS
from fgmix.results.report import Comparisons, all_compared, all_tables, has_overall, rankings
from fgmix.results.selection import RULES, Rule, Selection, select
from fgmix.results.tables import OVERALL, Table

SCRIPTS = ("tables.js", "charts.js", "runs.js", "live.js")
GENERATOR = "fgmix report"
_NOTHING = element("section", element("p", "No run has finished yet."), id="results")


@dataclass(frozen=True)
class Sources:
    """The folders of a report, as arguments of commands.

    Args:
        folders: of runs.
        from_domainbed: of sweeps of DomainBed.
    """

    folders: tuple[str, ...]
    from_domainbed: tuple[str, ...] = ()

    def command(self, kind: str, *options: str, every: bool = True) -> str:
        """The command that draws a figure of these folders; without `every`, of the folders of fgmix only."""
        theirs = [word for folder in self.from_domainbed for word in ("--from-domainbed", folder)]
        return shlex.join(["fgmix", "plot", kind, *self.folders, *(theirs if every else ()), *options])


def report_page(
    title: str,
    results: Results,
    choices: Choices = Choices(),  # noqa: B008 (frozen)
    *,
    sources: Sources = Sources(("SWEEP",)),  # noqa: B008 (frozen)
    status: Status | None = None,
    figures: Saved = Saved(),  # noqa: B008 (frozen)
    underway: Sequence[Chart] = (),
    made: str = "",
    live: bool = False,
    version: str = "",
) -> str:
    """The page as text.

    Args:
        title: heading of the page.
        results: of the finished runs.
        choices: how to select and show them.
        sources: the folders, for the commands that draw their figures as PDF and PNG.
        status: progress of the sweep, if it is one.
        figures: charts of arrays that `fgmix plot` saved.
        underway: curves of unfinished runs.
        made: a sentence on the origin of the page.
        live: update while the sweep runs; for a served page.
        version: of the content; a served page reloads when the server's version changes.
    """
    groups = [(label, select(records, choices.rule)) for label, records in results.groups() if records]
    selection = dict(groups).get("")  # of runs outside of grids
    against_erm = {} if selection is None else all_compared(selection)
    tables = all_tables(
        results,
        selection,
        rule=choices.rule,
        spread=choices.spread,
        published=choices.published,
        against_erm=against_erm,
    )
    own = dict(_result_charts(results, selection, against_erm, choices, sources))
    ablations = _ablations(selection, choices, sources) if selection is not None else []
    numbered = _numbered([*own.values(), *underway, *ablations, *_new(figures.charts, [*own.values(), *ablations])])
    beside, others = dict(zip(own, numbered)), numbered[len(own) :]
    training, saved = others[: len(underway)], others[len(underway) :]
    finished = results.all_records()
    rows = run_rows(finished, groups)
    style, script = _asset("page.css"), "\n".join(map(_asset, SCRIPTS))
    found = [] if selection is None else headlines(selection, results.records, against_erm)
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
    sections = [
        _section("training", "Unfinished runs", [*map(_figure, training)]),
        _section("results", "Results", _units(tables, beside)) or _NOTHING,
        _section("figures", "Figures", [*map(_figure, saved), *map(_note, figures.notes)]),
        _runs(len(finished), len(rows), choices.rule),
    ]
    body = element(
        "body",
        _header(title, made, [each.html() for each in found], choices, sections),
        element("main", _status(status, live), *map(_note, results.notes), sections),
        data_block("charts", encode(numbered)),
        packed_block("run-rows", rows),
        element("script", Html(script)),
        data_live=live,
        data_version=version if live else None,
    )
    return f'<!doctype html>\n<html lang="en">{join([head, body])}</html>\n'


def _result_charts(
    results: Results, selection: Selection | None, against_erm: Comparisons, choices: Choices, sources: Sources
) -> Iterator[tuple[str, Chart]]:
    """Charts from records alone, each with the title of the table that it is shown beside."""
    rule = ("--selection", choices.rule)
    if selection is not None:
        drawn = {
            dataset or OVERALL: replace(describe_differences(comparisons, selection.labels), id="differences")
            for dataset, comparisons in against_erm.items()
            if any(comparison.interval for comparison in comparisons) and (dataset or has_overall(selection))
        }
        kept = {id(each) for each in _new([*drawn.values()], ())}  # with one dataset, the overall chart repeats it
        for title, each in drawn.items():
            if id(each) in kept:
                where = "all datasets" if title == OVERALL else title
                yield title, replace(each, title=f"{each.title}, {where}") if len(kept) > 1 else each
        with suppress(UserError):  # too few methods or trials in common to rank
            for title, ranking in rankings(selection).items():
                of = () if title == RANKS else ("--dataset", title.removeprefix(f"{RANKS}, "))
                ranks = describe(collect_ranks(ranking, selection.labels), "ranks", sources.command("cd", *of, *rule))
                yield title, replace(ranks, title=title)
    for grid in results.grids:
        for sensitivity in collect_sensitivities(grid, rule=choices.rule, spread=choices.spread):
            command = sources.command("results", *rule, every=False)
            yield str(sensitivity.title), describe(sensitivity, "sensitivity", command)
    if results.costs is not None and ERM in results.costs.milliseconds:
        yield COST, describe(collect_cost(results.costs), "cost", sources.command("results", every=False))


def _ablations(selection: Selection, choices: Choices, sources: Sources) -> list[Chart]:
    """A figure of the variants of FGMix for each dataset and folder that has some."""
    published = ("--published",) if choices.published else ()
    command = sources.command("results", "--selection", choices.rule, *published)
    return [
        describe(
            collect_ablation(selection, dataset, origin=origin, spread=choices.spread, published=choices.published),
            f"ablation-{dataset}",
            command,
        )
        for dataset, origin in find_variants(selection, least=3)
    ]


def _new(saved: Sequence[Chart], shown: Iterable[Chart]) -> list[Chart]:
    """The saved charts whose content is not yet on the page, each once."""
    known = {json.dumps(encode(each.panels)) for each in shown}
    found = []
    for each in saved:
        content = json.dumps(encode(each.panels))
        if content not in known:
            found.append(each)
        known.add(content)
    return found


def _numbered(charts: Sequence[Chart]) -> list[Chart]:
    """The charts with unique ids, also for files of the same name."""
    return [replace(each, id=f"{number}-{each.id}") for number, each in enumerate(charts, start=1)]


def _units(tables: Sequence[Table], charts: Mapping[str, Chart]) -> list[Html]:
    """Tables, each beside its figure; the figure of the ranks replaces their table.

    The ranks are shown beside the significance tests; figures of the differences from ERM, beside the accuracies.
    """
    ranks = [drawn for title, drawn in charts.items() if title.startswith(RANKS)]
    units = []
    for table in tables:
        if table.title.startswith(RANKS) and table.title in charts:
            continue
        tests = table.title == DIFFERENCES
        drawn = (ranks.pop(0) if ranks else None) if tests else charts.get(table.title)
        shown = table_html(replace(table, title="Significance tests") if tests else table)
        units.append(element("div", shown, _figure(drawn), class_="unit") if drawn else shown)
    return [*units, *map(_figure, ranks)]


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


def _header(title: str, made: str, found: Sequence[Html], choices: Choices, sections: Sequence[Html]) -> Html:
    titles = {"training": "Unfinished runs", "results": "Results", "figures": "Figures", "runs": "Runs"}
    links = [(f"#{id}", text) for (id, text), section in zip(titles.items(), sections) if section]
    selected = f"Model selection: {RULES[choices.rule]}." if found else ""
    return element(
        "header",
        element("h1", title),
        element("div", found, class_="findings") if found else "",
        element("p", f"{selected} {made}".strip(), class_="caption"),
        element("nav", [element("a", text, href=href) for href, text in links]),
    )


def _status(status: Status | None, live: bool) -> Html:
    """Counts and failures of a sweep that is not complete; the script updates the counts while the sweep runs."""
    if status is None or not (live or status.left or status.errors):
        return Html("")
    counts = [
        element("span", f"{status.counts[state]} {state}", class_=f"state {state}")
        for state in ORDER
        if live or status.counts[state]
    ]
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


def _note(text: str) -> Html:
    return element("p", text, class_="caption")


def _section(id: str, title: str, content: Sequence[Html]) -> Html:
    return element("section", element("h2", title), content, id=id) if content else Html("")


def _figure(drawn: Chart) -> Html:
    how = element("p", "As PDF and PNG: ", element("code", drawn.command), class_="caption") if drawn.command else ""
    return element(
        "figure",
        element("h3", drawn.title),
        element("div", element("noscript", "This figure needs JavaScript."), class_="drawing"),
        element("figcaption", [_note(paragraph) for paragraph in drawn.caption.split("\n")], how),
        id=f"figure-{drawn.id}",
        class_="chart",
    )


def _runs(finished: int, listed: int, rule: Rule) -> Html:
    others = "" if rule == "training_domain" else f" for reported runs, {RULES['training_domain']} for others"
    shorter = (
        f" Listed are the {listed:,} behind the numbers above; `fgmix report --explain DATASET ALGORITHM DOMAIN` lists "
        "those that were not selected, too."
    )
    about = (
        f"{finished:,} finished.{shorter if listed < finished else ''} Open a run for its spec, its curves and the "
        f"command that reproduces it. Accuracy is on the test domain. Model selection: {RULES[rule]}{others}. A "
        "printout contains only the rows that are shown."
    )
    return element(
        "section",
        element("h2", "Runs"),
        element("p", about, class_="caption"),
        element("div", element("noscript", "The list of runs needs JavaScript."), id="run-list"),
        id="runs",
    )
