"""The tables of a report: `fgmix report`. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from fgmix.errors import UserError
from fgmix.records.rows import Row
from fgmix.records.schema import RunRecord
from fgmix.results.costs import cost_table
from fgmix.results.differences import comparison_table, mark_rows
from fgmix.results.formats import Tables
from fgmix.results.other_metrics import metrics_tables
from fgmix.results.paper_rows import add_paper_rows
from fgmix.results.ranks import RANKS, Ranking, rank_rows, ranking_table, unranked_table
from fgmix.results.runs import Runs, as_runs
from fgmix.results.selection import Rule, Selection, select
from fgmix.results.statistics import BASELINE, Comparisons, accuracies_by_row, check_margin, compare, copies, is_row
from fgmix.results.studies import grid_tables, list_tables, rule_tables, single_source_tables
from fgmix.results.tables import Spread, Table, dataset_table, overall_table


@dataclass(frozen=True)
class Choices:
    """How results are selected and shown."""

    rule: Rule = "training_domain"  # the selection rule
    spread: Spread = "stderr"  # what ± is
    published: bool = False  # whether to show the paper's numbers, too
    baseline: str = BASELINE  # what the other rows are compared with: the key or the label of a row
    margin: float | None = None  # half width of equivalence, in percentage points; None for no test of it
    every_rule: bool = False  # whether to show the other selection rules beside it, and their gap to the oracle

    def __post_init__(self) -> None:
        check_margin(self.margin)


def tabulate(
    runs: Runs | RunRecord | Iterable[RunRecord],
    *,
    rule: Rule = "training_domain",
    spread: Spread = "stderr",
    published: bool = False,
    baseline: str = BASELINE,
    margin: float | None = None,
    every_rule: bool = False,
) -> Tables:
    """Make the tables that `fgmix report` prints: accuracies, differences from a baseline, ranks and other metrics.

    Args:
        runs: finished runs, as `read_runs` returns them, or records.
        rule: selection rule: "training_domain", "last_evaluations", "leave_one_out" or "oracle".
        spread: what ± is: "stderr" or "std".
        published: add the numbers of the FGMix paper.
        baseline: key or label of the row that the others are compared with.
        margin: half width of equivalence, in percentage points; None for no test of it.
        every_rule: also show the selection rules side by side, with their gap to the oracle.
    """
    choices = Choices(rule, spread, published, baseline, margin, every_rule)
    read = as_runs(runs)
    return Tables(all_tables(read, select(read, rule) if read.records else None, choices))


def all_tables(runs: Runs, selection: Selection | None, choices: Choices) -> list[Table]:
    """Make the tables of runs outside of grids, of other metrics, of single sources, of grids, and of times per step.

    `selection` is that of the runs outside of grids; None if there are none.
    """
    tables: list[Table] = []
    if selection is not None:
        tables += report_tables(selection, choices, partial_trials=runs.partial_trials)
        tables += rule_tables(runs, choices.spread) if choices.every_rule else []
        tables += list_tables(selection, choices.spread)
        tables += metrics_tables(selection)
    tables += single_source_tables(runs.single_source, choices.rule, choices.spread)
    for grid in runs.grids:
        tables += grid_tables(grid, rule=choices.rule, spread=choices.spread, published=choices.published)
    if runs.costs is not None:
        tables.append(cost_table(runs.costs))
    return tables


def report_tables(
    selection: Selection,
    choices: Choices = Choices(),  # noqa: B008 (frozen)
    *,
    partial_trials: bool = False,
) -> list[Table]:
    """Make a table per dataset, the overall table if there are several, the differences, and the ranks.

    The arguments are those of `all_tables` and `overall_table`.
    """
    compared = compare_all(selection, choices.baseline, choices.margin)
    tables = []
    for name, comparisons in compared.items():
        if name is not None:
            table = dataset_table(selection, name, spread=choices.spread)
        elif has_overall(selection):
            table = overall_table(selection, spread=choices.spread, partial_trials=partial_trials)
        else:
            continue
        table = mark_rows(table, comparisons)
        tables.append(add_paper_rows(table) if choices.published else table)
    if comparisons := [*compared.values()][-1]:  # over all datasets, or on the only one
        tables.append(comparison_table(comparisons, selection.labels))
    return [*tables, *_rank_tables(selection)]


@lru_cache(16)
def compare_all(
    selection: Selection, baseline: str = BASELINE, margin: float | None = None
) -> Mapping[str | None, Comparisons]:
    """Compare every row with the baseline on each dataset, and over all of them (under None) if there are several."""
    datasets: list[str | None] = [*selection.domains]
    every = datasets if len(datasets) == 1 else [*datasets, None]
    if baseline == BASELINE and not is_row(selection.labels, baseline):  # a report without ERM has no differences
        return dict.fromkeys(every, Comparisons((), selection.labels))
    return {name: compare(selection, baseline, margin, dataset=name) for name in every}


def has_overall(selection: Selection) -> bool:
    """Say whether a row has numbers on several datasets: otherwise there is nothing to average over datasets."""
    datasets: dict[Row, set[str]] = {}
    for cell in selection.accuracies():
        datasets.setdefault(cell.row, set()).add(cell.dataset)
    return any(len(names) > 1 for names in datasets.values())


@lru_cache(16)
def rankings(selection: Selection) -> dict[str, Ranking]:
    """Rank the rows over all datasets, or, if that is impossible, on each dataset that allows it; by title.

    Raises an error if there is one dataset only, and its rows cannot be ranked.
    """
    try:
        return {RANKS: rank_rows(selection)}
    except UserError:
        if len(selection.domains) < 2:
            raise
    by_title = {}
    for dataset in selection.domains:
        with suppress(UserError):
            by_title[f"{RANKS}, {dataset}"] = rank_rows(selection, dataset=dataset)
    return by_title


def _rank_tables(selection: Selection) -> list[Table]:
    """Make the table of average ranks, or of the reason why there are none; empty for two rows."""
    twins = copies(selection, None)
    rows = [row for row in accuracies_by_row(selection, None) if row not in twins]
    if len(rows) < 3:  # the ranks of two add nothing to their difference
        return []
    try:
        return [ranking_table(ranking, selection.labels, title) for title, ranking in rankings(selection).items()]
    except UserError as error:
        return [unranked_table(rows, str(error), selection.labels)]
