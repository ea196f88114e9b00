"""Tables of grids: model selection within every combination of settings, and a table of the accuracies.

The columns of a table are the values of the last setting, its rows the combinations of the others, as in the paper's
table of the sensitivity to α and λ₀.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from fgmix.records.rows import Row, collect_labels, label_row
from fgmix.results.grids import Grid, format_setting, format_value, symbol
from fgmix.results.paper_rows import PAPER
from fgmix.results.published import sensitivity
from fgmix.results.selection import Rule, Selection, find_test_domains, select
from fgmix.results.tables import Entry, Spread, Table, TableRow, overall_caption, overall_table

PAPER_DATASET = "TerraIncognita"
PAPER_GRID = ("lam", "alpha")


def grid_tables(
    grid: Grid, *, rule: Rule = "training_domain", spread: Spread = "stderr", published: bool = False
) -> list[Table]:
    """Make a table for each dataset and row that has the grid's settings.

    Args:
        grid: the runs.
        rule: selection rule, applied within each combination.
        spread: "stderr" or "std" over the trials, each the mean over its test domains.
        published: add the paper's sensitivity, whatever our dataset is.
    """
    held_out = find_test_domains(grid.records)  # a point of the grid may lack some
    selections = {point: select(grid.at(point), rule, held_out) for point in grid.points()}
    tables = []
    for dataset in dict.fromkeys(record.dataset for record in grid.records):
        for row in _list_rows(selections):
            table = _table(grid, selections, dataset, row, spread)
            tables.append(_add_paper_rows(table, grid, dataset) if published and row == Row("fgmix") else table)
    return tables


def _list_rows(selections: Mapping[tuple[Any, ...], Selection]) -> list[Row]:
    """List the rows of the grid, raw before averaged."""
    rows = dict.fromkeys(row for selection in selections.values() for row in selection.rows())
    return sorted(rows, key=lambda row: row.model != "raw")


def _table(
    grid: Grid, selections: Mapping[tuple[Any, ...], Selection], dataset: str, row: Row, spread: Spread
) -> Table:
    *leading, last = grid.values
    any_run = next(selection for selection in selections.values() if dataset in selection.domains)
    overall = {point: overall_table(selection, spread=spread) for point, selection in selections.items()}
    rows = tuple(
        TableRow(
            row,
            tuple(_find_entry(overall[*first, value], dataset, row) for value in grid.values[last]),
            name=", ".join(map(format_value, first)),
        )
        for first in product(*(grid.values[name] for name in leading))
    )
    labels = collect_labels(grid.records)
    return Table(
        f"{dataset}: {label_row(labels, row)} by {' and '.join(map(symbol, grid.values))}",
        f"{overall_caption(any_run, spread)} Test domains: {', '.join(any_run.domains[dataset])}.",
        tuple(format_setting(last, value) for value in grid.values[last]),
        rows,
        labels,
        best=False,
        corner=", ".join(map(symbol, leading)) or "Method",
    )


def _find_entry(table: Table, dataset: str, row: Row) -> Entry:
    for each in table.rows:
        if each.row == row and dataset in table.columns:
            return each.entries[table.columns.index(dataset)]
    return Entry(note="not run")


def _add_paper_rows(table: Table, grid: Grid, dataset: str) -> Table:
    """Add the paper's row below each of ours; for another grid, name the paper's in the caption."""
    if tuple(grid.values) != PAPER_GRID:
        missing = (
            f"The paper has no numbers for this grid. Its grid is over {' and '.join(map(symbol, PAPER_GRID))}: run it "
            "with fgmix sweep --preset paper-sensitivity."
        )
        return replace(table, caption=f"{table.caption} {missing}")
    theirs = sensitivity()
    source = PAPER if dataset == PAPER_DATASET else f"{PAPER}, {PAPER_DATASET}"
    rows: list[TableRow] = []
    for lam, row in zip(grid.values["lam"], table.rows):
        numbers = [theirs.get((PAPER_DATASET, lam, alpha)) for alpha in grid.values["alpha"]]
        rows += [row, replace(row, entries=tuple(map(Entry, numbers)), source=source)]
    caption = f"{table.caption} Rows marked (paper) are published numbers, without a spread."
    return replace(table, rows=tuple(rows), caption=caption)
