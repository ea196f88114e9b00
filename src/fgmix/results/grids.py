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
from fgmix.results.selection import Rule, Selection, select
from fgmix.results.tables import Entry, Spread, Table, TableRow, overall_caption, overall_table

SYMBOLS = {"alpha": "α", "lam": "λ₀"}  # the paper's symbols of settings
PAPER_DATASET = "TerraIncognita"
PAPER_GRID = ("lam", "alpha")


@dataclass(frozen=True)
class Grid:
    """The finished runs of a grid.

    Args:
        values: of each setting.
        records: the runs, of all combinations.
    """

    values: Mapping[str, tuple[Any, ...]]
    records: tuple[RunRecord, ...]

    def points(self) -> list[tuple[Any, ...]]:
        """Every combination of the values."""
        return list(product(*self.values.values()))

    def at(self, point: tuple[Any, ...]) -> list[RunRecord]:
        """The runs of a combination; for a method without one of the settings, the same at all values of it."""
        return [
            record
            for record in self.records
            if all(record.spec.settings.get(name, value) == value for name, value in zip(self.values, point))
        ]

    def groups(self) -> list[tuple[str, list[RunRecord]]]:
        """Groups of runs for model selection, each run once, with their settings as text: "λ₀ = 3, α = 0.1".

        A method with some of the settings has a group for each combination of these.
        """
        found: dict[str, dict[int, RunRecord]] = {}
        for point in self.points():
            for record in self.at(point):
                own = [(name, value) for name, value in zip(self.values, point) if name in record.spec.settings]
                label = ", ".join(f"{symbol(name)} = {_text(value)}" for name, value in own)
                found.setdefault(label, {})[id(record)] = record
        return [(label, list(records.values())) for label, records in found.items()]


def split_grids(
    records: Sequence[RunRecord], plans: Mapping[Path, Sequence[Plan]]
) -> tuple[list[RunRecord], list[Grid]]:
    """The records outside of grids, and the grids; sweeps over the same grid are merged.

    A method without any of a grid's settings, such as ERM in a sweep over λ₀, is outside of it: its runs are the same
    at every point, and would be counted several times.

    Args:
        records: finished runs.
        plans: plans of the sweeps in each folder.
    """
    if not any(plan.grid for on_folder in plans.values() for plan in on_folder):
        return list(records), []
    plain: set[Path] = set()
    members: dict[tuple[tuple[str, tuple[Any, ...]], ...], set[Path]] = {}
    for folder, on_folder in plans.items():
        for plan in on_folder:
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


def symbol(setting: str) -> str:
    """A setting's symbol in tables, or its name."""
    return SYMBOLS.get(setting, setting)


def grid_tables(
    grid: Grid, *, rule: Rule = "training_domain", spread: Spread = "stderr", published: bool = False
) -> list[Table]:
    """A table for each dataset and method that has the grid's settings.

    Args:
        grid: the runs.
        rule: selection rule, applied within each combination.
        spread: "stderr" or "std" over the trials, each the mean over its test domains.
        published: add the paper's sensitivity, whatever our dataset is.
    """
    selections = {point: _of_held_out(select(grid.at(point), rule), grid) for point in grid.points()}
    tables = []
    for dataset in dict.fromkeys(record.dataset for record in grid.records):
        for method in _methods(selections):
            table = _table(grid, selections, dataset, method, spread)
            tables.append(_beside(table, grid, dataset) if published and method == Row("fgmix") else table)
    return tables


def _of_held_out(selection: Selection, grid: Grid) -> Selection:
    """The selection without the domains that no run of the grid holds out, so that means are over the others."""
    held_out = {(record.dataset, *record.spec.test_domains) for record in grid.records}
    domains = {
        dataset: tuple(name for name in names if (dataset, name) in held_out)
        for dataset, names in selection.domains.items()
    }
    return replace(selection, domains=domains)


def _methods(selections: Mapping[tuple[Any, ...], Selection]) -> list[Row]:
    """Methods of the grid, raw before averaged."""
    found = dict.fromkeys(method for selection in selections.values() for method in selection.rows())
    return sorted(found, key=lambda method: method.model != "raw")


def _table(
    grid: Grid, selections: Mapping[tuple[Any, ...], Selection], dataset: str, method: Row, spread: Spread
) -> Table:
    *leading, last = grid.values
    any_run = next(selection for selection in selections.values() if dataset in selection.domains)
    overall = {point: overall_table(selection, spread=spread) for point, selection in selections.items()}
    rows = tuple(
        TableRow(
            method,
            tuple(_entry(overall[*first, value], dataset, method) for value in grid.values[last]),
            name=", ".join(map(_text, first)),
        )
        for first in product(*(grid.values[name] for name in leading))
    )
    labels = collect_labels(grid.records)
    return Table(
        f"{dataset}: {label_row(labels, method)} by {' and '.join(map(symbol, grid.values))}",
        f"{overall_caption(any_run, spread)} Test domains: {', '.join(any_run.domains[dataset])}.",
        tuple(f"{symbol(last)} = {_text(value)}" for value in grid.values[last]),
        rows,
        labels,
        best=False,
        corner=", ".join(map(symbol, leading)) or "Method",
    )


def _entry(table: Table, dataset: str, method: Row) -> Entry:
    for row in table.rows:
        if row.row == method and dataset in table.columns:
            return row.entries[table.columns.index(dataset)]
    return Entry(note="not run")


def _beside(table: Table, grid: Grid, dataset: str) -> Table:
    """The table with the paper's row below each of ours; for another grid, with a caption that names the paper's."""
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
    return f"{value:g}" if isinstance(value, float) else str(value)
