"""The paper's rows below ours: `fgmix report --published`."""

from __future__ import annotations

from dataclasses import replace

from fgmix.records.benchmarks import paper_domain
from fgmix.records.rows import Row, label_row
from fgmix.results.published import AVERAGE, accuracies, overall
from fgmix.results.tables import Entry, Table, TableRow

PAPER = "paper"  # the source of a row
ABOUT = (
    "Rows marked (paper) are published numbers; their ± is a standard error where the paper cites another, else a "
    "standard deviation over its five trials (ours with --spread std)."
)


def beside(table: Table) -> Table:
    """A table of `dataset_table` or `overall_table` with the paper's row below each of ours that it has.

    The caption lists the methods or datasets that the paper does not have, and the preset that runs those it has.
    """
    rows: list[TableRow] = []
    shown: set[Row] = set()
    for row in table.rows:
        method = _without_origin(row)
        rows.append(row)
        if _has_row(table, method) and method not in shown:  # once, if several folders have the method
            shown.add(method)
            rows.append(TableRow(method, _entries(table, method), source=PAPER))
    notes = [table.caption, ABOUT if len(rows) > len(table.rows) else "", lacking(table)]
    return replace(table, rows=tuple(rows), caption=" ".join(filter(None, notes)))


def lacking(table: Table) -> str:
    """Which rows of a table the paper does not have, and how to run those that it has; empty if it has all."""
    methods = [row.row for row in table.rows if not _has_row(table, _without_origin(row))]
    if not methods:
        return ""
    names = ", ".join(label_row(table.labels, method) for method in methods)
    if len(methods) < len(table.rows):
        return f"The paper has no numbers of {names}."
    datasets = [name for name in next(iter(overall().values())) if name != AVERAGE]
    where = table.dataset if table.dataset and table.dataset not in datasets else "these rows"
    return (
        f"The paper has no numbers for {where}. Its datasets are {', '.join(datasets)}: run its methods on them "
        "with fgmix sweep --preset paper-overall."
    )


def _without_origin(row: TableRow) -> Row:
    return row.row.anywhere


def _has_row(table: Table, method: Row) -> bool:
    return any(entry.value is not None for entry in _entries(table, method))


def _entries(table: Table, method: Row) -> tuple[Entry, ...]:
    if table.dataset is None:
        return _overall_entries(method, table.columns)
    columns = [AVERAGE if name == AVERAGE else paper_domain(table.dataset, name) for name in table.columns]
    complete = None not in columns  # else the paper's average is over other domains than ours
    found = accuracies()
    return tuple(
        Entry(*found.get((table.dataset, method, name), ())) if name and (complete or name != AVERAGE) else Entry()
        for name in columns
    )


def _overall_entries(method: Row, columns: tuple[str, ...]) -> tuple[Entry, ...]:
    """The paper's average is over its five datasets; over fewer, it is the mean of those shown."""
    theirs = overall().get(method, {})
    datasets = [name for name in columns if name != AVERAGE]
    values = [theirs[name] for name in datasets if name in theirs]
    if len(values) < len(datasets) or not values:
        average = Entry()
    else:
        average = Entry(theirs[AVERAGE] if len(values) == len(theirs) - 1 else sum(values) / len(values))
    return tuple(average if name == AVERAGE else Entry(theirs.get(name)) for name in columns)
