"""The tables of a report, and their text: `fgmix report`. No torch."""

from __future__ import annotations

from fgmix.errors import UserError
from fgmix.results.beside import beside
from fgmix.results.collect import Results
from fgmix.results.costs import cost_table
from fgmix.results.formats import render
from fgmix.results.grids import grid_tables
from fgmix.results.selection import Rule, Selection, select
from fgmix.results.statistics import (
    BASELINE,
    Comparison,
    accuracies_by_method,
    compare,
    comparison_table,
    copies,
    marked,
    rank_methods,
    ranking_table,
    unranked_table,
)
from fgmix.results.tables import Spread, Table, dataset_table, overall_table


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
    results: Results, selection: Selection | None, *, rule: Rule, spread: Spread, published: bool
) -> list[Table]:
    """Tables of the plain runs, of every grid, and of the times per step.

    Args:
        results: what a folder holds.
        selection: what was selected among the plain runs; None if there are none.
        rule: the rule, for the grids.
        spread: what stands after ±.
        published: whether the paper's numbers stand beside ours.
    """
    tables: list[Table] = []
    if selection is not None:
        shown = {"published": published, "partial_trials": results.partial_trials}
        tables += report_tables(selection, spread=spread, **shown)
    for grid in results.grids:
        tables += grid_tables(grid, rule=rule, spread=spread, published=published)
    if results.costs is not None:
        tables.append(cost_table(results.costs))
    return tables


def report_tables(
    selection: Selection, *, spread: Spread = "stderr", published: bool = False, partial_trials: bool = False
) -> list[Table]:
    """A table per dataset, the overall one where there are several, the differences from ERM, and the ranks."""
    datasets: list[str | None] = [*selection.domains]
    if len(datasets) > 1:
        datasets.append(None)
    tables = []
    against_erm: list[Comparison] = []
    for name in datasets:
        table = (
            dataset_table(selection, name, spread=spread)
            if name
            else overall_table(selection, spread=spread, partial_trials=partial_trials)
        )
        against_erm = compared(selection, name)
        marks = marked(table, against_erm)
        tables.append(beside(marks) if published else marks)
    if against_erm:  # of the last table, which is over all datasets
        tables.append(comparison_table(against_erm, selection.labels))
    return [*tables, *_rank_tables(selection)]


def compared(selection: Selection, dataset: str | None = None) -> list[Comparison]:
    """Every method against ERM; nothing where ERM has no number."""
    has_erm = any(method.algorithm == BASELINE for method in accuracies_by_method(selection, dataset))
    return compare(selection, dataset=dataset) if has_erm else []


def _rank_tables(selection: Selection) -> list[Table]:
    """Average ranks, or why there are none; nothing for two methods, whose ranks say no more than their difference."""
    twins = copies(selection)
    methods = [method for method in accuracies_by_method(selection) if method not in twins]
    if len(methods) < 3:
        return []
    try:
        return [ranking_table(rank_methods(selection), selection.labels)]
    except UserError as error:
        return [unranked_table(methods, str(error), selection.labels)]
