"""The HTML report: the results of a folder of runs in one self-contained file.

`templates/page.html` has its text. The page contains its style and script and lists their hashes in its content policy:
nothing else can run, and nothing is fetched. Text from data reaches the page escaped, or as JSON that the script
inserts as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

import fgmix
from fgmix.errors import UserError
from fgmix.figures.arrays import Findings
from fgmix.figures.cd import collect_ranks
from fgmix.figures.description import Chart, encode
from fgmix.figures.differences import Differences
from fgmix.figures.kinds import collect_figures, describe
from fgmix.records.status import ORDER, Status
from fgmix.report.runs import list_runs
from fgmix.report.summary import write_headlines
from fgmix.results.costs import COST
from fgmix.results.differences import DIFFERENCES, mark_differences
from fgmix.results.formats import footnotes, latex
from fgmix.results.published import AVERAGE
from fgmix.results.ranks import RANKS
from fgmix.results.report import Choices, all_tables, compare_all, rankings
from fgmix.results.runs import Runs
from fgmix.results.selection import RULES, Selection, select
from fgmix.results.statistics import BASELINE
from fgmix.results.tables import OVERALL, Table

SCRIPTS = ("tables.js", "charts.js", "runs.js", "live.js")
GENERATOR = "fgmix report"
Unit = tuple[Table | None, Chart | None]  # shown side by side


@dataclass(frozen=True)
class Sources:
    """The folders of a report, as arguments of commands."""

    folders: tuple[str, ...] = ("SWEEP",)  # of runs
    from_domainbed: tuple[str, ...] = ()  # of sweeps of DomainBed

    def command(self, kind: str, *options: str) -> str:
        """Write the command that draws a figure of these folders."""
        theirs = [word for folder in self.from_domainbed for word in ("--from-domainbed", folder)]
        return shlex.join(["fgmix", "plot", kind, *self.folders, *theirs, *options])


@dataclass(frozen=True)
class Saved:
    """Figures that `fgmix plot` saved."""

    charts: tuple[Chart, ...] = ()  # those that could be read
    notes: tuple[str, ...] = ()  # errors of the others


@dataclass(frozen=True)
class Frame:
    """What stands around the runs."""

    title: str  # heading of the page
    origin: str = ""  # a sentence on the origin of the page
    sources: Sources = Sources()  # the folders, for the commands that draw their figures on paper
    status: Status | None = None  # progress of the sweep, if it is one
    figures: Saved = Saved()
    underway: Sequence[Chart] = ()  # curves of unfinished runs
    live: bool = False  # update while the sweep runs; for a served page
    version: str = ""  # of the content; a served page reloads when the server's version changes


def render_page(frame: Frame, runs: Runs, choices: Choices = Choices()) -> str:  # noqa: B008 (frozen)
    """Render the results of finished runs, selected and shown as chosen, as the text of a page."""
    groups = [(label, select(records, choices.rule, runs.test_domains)) for label, records in runs.groups() if records]
    selection = dict(groups).get("")  # of runs outside of grids
    tables = all_tables(runs, selection, choices)
    figures = list(_describe_figures(Findings(runs, selection or select([]), choices), frame.sources))
    own = {title: chart for title, chart in figures if title}
    own |= {} if selection is None else dict(_describe_ranks(selection, choices, frame.sources))
    alone = [chart for title, chart in figures if not title]
    new = _drop_repeated(frame.figures.charts, [*own.values(), *alone])
    every = [*own.values(), *frame.underway, *alone, *new]
    # Unique ids, also for files of the same name
    charts = [replace(each, id=f"{number}-{each.id}") for number, each in enumerate(every, start=1)]
    beside, others = dict(zip(own, charts)), charts[len(own) :]
    training, saved = others[: len(frame.underway)], others[len(frame.underway) :]
    finished = runs.all_records()
    rows = list_runs(finished, groups)
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
        **_describe_status(frame.status, frame.live),
        notes=runs.notes,
        training=training,
        units=units,
        latex=[latex(table) for table, _ in units if table],
        saved=saved,
        finished=len(finished),
        rule=choices.rule,
        rules=RULES,
        charts=encode(charts),
        rows=rows,
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


def _describe_ranks(selection: Selection, choices: Choices, sources: Sources) -> Iterator[tuple[str, Chart]]:
    """Describe ranks, each with the title of their table."""
    with suppress(UserError):  # too few algorithms or trials in common to rank
        for title, ranking in rankings(selection).items():
            of = () if title == RANKS else ("--dataset", title.removeprefix(f"{RANKS}, "))
            command = sources.command("cd", *of, "--selection", choices.rule)
            yield title, replace(describe(collect_ranks(ranking, selection.labels), "ranks", command), title=title)


def _describe_figures(findings: Findings, sources: Sources) -> Iterator[tuple[str, Chart]]:
    """Describe the figures of `fgmix plot results`, each with the title of the table beside it; empty for none."""
    choices = findings.choices
    options = ("--selection", choices.rule, *(("--published",) if choices.published else ()))
    for kind, name, arrays in collect_figures(findings):
        against = ("--baseline", choices.baseline) if kind == "differences" and choices.baseline != BASELINE else ()
        chart = describe(arrays, name, sources.command("results", "--kind", kind, *options, *against))
        beside = arrays.dataset or OVERALL if isinstance(arrays, Differences) else ""
        yield {"sensitivity": chart.title, "cost": COST}.get(kind, beside), chart


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
    """Replace the results in the table of differences by marks."""
    if selection is None:
        return list(tables)
    comparisons = [*compare_all(selection, choices.baseline, choices.margin).values()][-1]
    return [mark_differences(each, comparisons) if each.title.startswith(DIFFERENCES) else each for each in tables]


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


def _describe_status(status: Status | None, live: bool) -> dict[str, Any]:
    """Describe a sweep that is not complete: counts, time left and failures."""
    if status is None or not (live or status.left or status.errors):
        return {"counts": None}
    return {
        "counts": {state: status.counts[state] for state in ORDER if live or status.counts[state]},
        "time_left": " ".join(status.lines()[1:2]) if status.left else "",
        "failures": status.errors,
    }


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
