"""Grids of settings: model selection within every combination, and a table of the accuracies.

The columns of a table are the values of the last setting, its rows the combinations of the others, as in the paper's
table of the sensitivity to α and λ₀.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from fgmix.records.plans import Plan
from fgmix.records.rows import Row, collect_labels, label_row
from fgmix.records.schema import RunRecord
from fgmix.results.paper_rows import PAPER
from fgmix.results.published import sensitivity
from fgmix.results.selection import Rule, Selection, find_test_domains, select
from fgmix.results.tables import Entry, Spread, Table, TableRow, overall_caption, overall_table

SYMBOLS = {"alpha": "α", "lam": "λ₀"}  # the paper's symbols of settings
PAPER_DATASET = "TerraIncognita"
PAPER_GRID = ("lam", "alpha")


@dataclass(frozen=True)
class Grid:
    """The finished runs of a grid."""

    values: Mapping[str, tuple[Any, ...]]  # of each setting
    records: tuple[RunRecord, ...]  # the runs, of all combinations

    def points(self) -> list[tuple[Any, ...]]:
        """List every combination of the values."""
        return list(product(*self.values.values()))

    def at(self, point: tuple[Any, ...]) -> list[RunRecord]:
        """Return the runs of a combination; for an algorithm without a setting, the same at all values of it."""
        return [
            record
            for record in self.records
            if all(record.spec.settings.get(name, value) == value for name, value in zip(self.values, point))
        ]

    def groups(self) -> list[tuple[str, list[RunRecord]]]:
        """Group the runs for model selection, each run once, with their settings as text: "λ₀ = 3, α = 0.1".

        An algorithm with some of the settings has a group for each combination of these.
        """
        by_label: dict[str, dict[int, RunRecord]] = {}
        for point in self.points():
            for record in self.at(point):
                own = [(name, value) for name, value in zip(self.values, point) if name in record.spec.settings]
                label = ", ".join(format_setting(name, value) for name, value in own)
                by_label.setdefault(label, {})[id(record)] = record
        return [(label, list(records.values())) for label, records in by_label.items()]


def split_grids(
    records: Sequence[RunRecord], plans: Mapping[Path, Sequence[Plan]]
) -> tuple[list[RunRecord], list[Grid]]:
    """Split the records into those outside of grids, and the grids; sweeps over the same grid are merged.

    An algorithm without any of a grid's settings, such as ERM in a sweep over λ₀, is outside of it: its runs are the
    same at every point, and would be counted several times.

    Args:
        records: finished runs.
        plans: plans of the sweeps in each folder.
    """
    if not any(plan.grid for in_folder in plans.values() for plan in in_folder):
        return list(records), []
    plain: set[Path] = set()
    members: dict[tuple[tuple[str, tuple[Any, ...]], ...], set[Path]] = {}
    for folder, in_folder in plans.items():
        for plan in in_folder:
            wanted = members.setdefault(tuple(plan.grid.items()), set()) if plan.grid else plain
            wanted.update(folder / name for name in plan.runs)
    grids = [
        Grid(dict(values), tuple(r for r in records if r.folder in wanted and r.spec.settings.keys() & dict(values)))
        for values, wanted in members.items()
    ]
    only_in_grids = {record.folder for grid in grids for record in grid.records} - plain
    return [record for record in records if record.folder not in only_in_grids], [
        grid for grid in grids if grid.records
    ]


def format_setting(name: str, value: Any) -> str:
    """Print a setting with its value.

    >>> format_setting("alpha", 0.1)
    'α = 0.1'
    """
    return f"{symbol(name)} = {_text(value)}"


def symbol(setting: str) -> str:
    """Return a setting's symbol in tables, or its name."""
    return SYMBOLS.get(setting, setting)


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
            name=", ".join(map(_text, first)),
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


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
