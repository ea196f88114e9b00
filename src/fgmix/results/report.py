"""The tables of a report, and their text: `fgmix report`. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fgmix.errors import UserError
from fgmix.records.rows import Row
from fgmix.results.collect import Results
from fgmix.results.costs import cost_table
from fgmix.results.formats import render
from fgmix.results.grids import grid_tables
from fgmix.results.other_metrics import metrics_tables
from fgmix.results.paper_rows import beside
from fgmix.results.ranks import RANKS, Ranking, rank_rows, ranking_table, unranked_table
from fgmix.results.selection import Rule, Selection, compute_once, select
from fgmix.results.statistics import Comparison, accuracies_by_row, compare, comparison_table, copies, mark_rows
from fgmix.results.tables import Spread, Table, dataset_table, overall_table

Comparisons = Mapping[str | None, Sequence[Comparison]]  # by dataset; None: over all


@dataclass(frozen=True)
class Choices:
    """How results are selected and shown."""

    rule: Rule = "training_domain"  # the selection rule
    spread: Spread = "stderr"  # what ± is
    published: bool = False  # whether to show the paper's numbers, too


def report_text(
    results: Results,
    *,
    rule: Rule = "training_domain",
    format: str = "md",
    spread: Spread = "stderr",
    published: bool = False,
) -> str:
    """All tables of a folder as text."""
    selection = select(results.records, rule) if results.records else None
    tables = all_tables(results, selection, rule=rule, spread=spread, published=published)
    return render(tables, format)


def all_tables(
    results: Results,
    selection: Selection | None,
    *,
    rule: Rule,
    spread: Spread,
    published: bool,
) -> list[Table]:
    """Tables of the runs outside of grids, of metrics besides accuracy, of every grid, and of the times per step.

    Args:
        results: the results in a folder.
        selection: the selection among the runs outside of grids; None if there are none.
        rule: selection rule, for the grids.
        spread: what is shown after ±.
        published: whether to add the paper's numbers.
    """
    tables: list[Table] = []
    if selection is not None:
        tables += report_tables(
            selection,
            spread=spread,
            published=published,
            partial_trials=results.partial_trials,
        )
        tables += metrics_tables(selection)
    for grid in results.grids:
        tables += grid_tables(grid, rule=rule, spread=spread, published=published)
    if results.costs is not None:
        tables.append(cost_table(results.costs))
    return tables


def report_tables(
    selection: Selection,
    *,
    spread: Spread = "stderr",
    published: bool = False,
    partial_trials: bool = False,
) -> list[Table]:
    """A table per dataset, the overall table if there are several, the differences from ERM, and the ranks.

    Args:
        selection: the selected accuracies.
        spread: what is shown after ±.
        published: whether to add the paper's numbers.
        partial_trials: as in `overall_table`.
    """
    found = compare_all(selection)
    tables = []
    for name, comparisons in found.items():
        if name is None and not has_overall(selection):
            continue
        table = (
            dataset_table(selection, name, spread=spread)
            if name
            else overall_table(selection, spread=spread, partial_trials=partial_trials)
        )
        marks = mark_rows(table, comparisons)
        tables.append(beside(marks) if published else marks)
    if comparisons := [*found.values()][-1]:  # over all datasets, or on the only one
        tables.append(comparison_table(comparisons, selection.labels))
    return [*tables, *_rank_tables(selection)]


@compute_once
def compare_all(selection: Selection) -> Comparisons:
    """Every method against ERM on each dataset, and over all of them (under None) if there are several."""
    datasets: list[str | None] = [*selection.domains]
    return {name: compare(selection, name) for name in (datasets if len(datasets) == 1 else [*datasets, None])}


def has_overall(selection: Selection) -> bool:
    """Whether a method has numbers on several datasets: otherwise there is nothing to average over datasets."""
    datasets: dict[Row, set[str]] = {}
    for cell in selection.accuracies():
        datasets.setdefault(cell.row, set()).add(cell.dataset)
    return any(len(found) > 1 for found in datasets.values())


@compute_once
def rankings(selection: Selection) -> dict[str, Ranking]:
    """Rankings by title: over all datasets, or, if the methods cannot be ranked there, on each dataset that allows it.

    Raises an error if there is one dataset only, and its methods cannot be ranked.
    """
    try:
        return {RANKS: rank_rows(selection)}
    except UserError:
        if len(selection.domains) < 2:
            raise
    found = {}
    for dataset in selection.domains:
        with suppress(UserError):
            found[f"{RANKS}, {dataset}"] = rank_rows(selection, dataset=dataset)
    return found


def _rank_tables(selection: Selection) -> list[Table]:
    """Average ranks, or why there are none; empty for two methods, whose ranks add nothing to their difference."""
    twins = copies(selection)
    methods = [method for method in accuracies_by_row(selection) if method not in twins]
    if len(methods) < 3:
        return []
    try:
        return [ranking_table(ranking, selection.labels, title) for title, ranking in rankings(selection).items()]
    except UserError as error:
        return [unranked_table(methods, str(error), selection.labels)]
