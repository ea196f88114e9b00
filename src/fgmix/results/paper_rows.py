"""The paper's rows below ours: `fgmix report --published`."""

from __future__ import annotations

from dataclasses import replace

from fgmix.records.benchmarks import paper_domain
from fgmix.records.rows import Row, label_row
from fgmix.results.published import AVERAGE, accuracies, overall
from fgmix.results.tables import Entry, Table, TableRow

PAPER = "paper"  # the source of a row
FEW = 3  # rows that are named in a caption
ABOUT = (
    "Rows marked (paper) are published numbers; their ± is a standard error where the paper cites another, else a "
    "standard deviation over its five trials (ours with --spread std)."
)


def add_paper_rows(table: Table) -> Table:
    """Add the paper's row below each of ours that it has to a table of `dataset_table` or `overall_table`.

    The caption lists the rows or datasets that the paper does not have, and the preset that runs those it has.
    """
    rows: list[TableRow] = []
    shown: set[Row] = set()
    for each in table.rows:
        row = each.row.anywhere
        rows.append(each)
        if _has_row(table, row) and row not in shown:  # once, if several folders have the row
            shown.add(row)
            rows.append(TableRow(row, _entries(table, row), source=PAPER))
    notes = [table.caption, ABOUT if len(rows) > len(table.rows) else "", describe_missing(table)]
    return replace(table, rows=tuple(rows), caption=" ".join(filter(None, notes)))


def describe_missing(table: Table) -> str:
    """Say which rows of a table the paper does not have, and how to run those that it has; empty if it has all."""
    rows = [each.row for each in table.rows if not _has_row(table, each.row.anywhere)]
    if not rows:
        return ""
    if len(rows) < len(table.rows):
        names = ", ".join(label_row(table.labels, row) for row in rows)
        return f"The paper has no numbers of {names if len(rows) <= FEW else f'{len(rows)} of these rows'}."
    datasets = [name for name in next(iter(overall().values())) if name != AVERAGE]
    where = table.dataset if table.dataset and table.dataset not in datasets else "these rows"
    return (
        f"The paper has no numbers for {where}. Its datasets are {', '.join(datasets)}: run its methods on them "
        "with fgmix sweep --preset paper-overall."
    )


def _has_row(table: Table, row: Row) -> bool:
    return any(entry.value is not None for entry in _entries(table, row))


def _entries(table: Table, row: Row) -> tuple[Entry, ...]:
    if table.dataset is None:
        return _overall_entries(row, table.columns)
    columns = [AVERAGE if name == AVERAGE else paper_domain(table.dataset, name) for name in table.columns]
    complete = None not in columns  # else the paper's average is over other domains than ours
    theirs = accuracies()
    return tuple(
        Entry(*theirs.get((table.dataset, row, name), ())) if name and (complete or name != AVERAGE) else Entry()
        for name in columns
    )


def _overall_entries(row: Row, columns: tuple[str, ...]) -> tuple[Entry, ...]:
    """Return the paper's numbers; its average is over five datasets, and over fewer it is the mean of those shown."""
    theirs = overall().get(row, {})
    datasets = [name for name in columns if name != AVERAGE]
    values = [theirs[name] for name in datasets if name in theirs]
    if len(values) < len(datasets) or not values:
        average = Entry()
    else:
        average = Entry(theirs[AVERAGE] if len(values) == len(theirs) - 1 else sum(values) / len(values))
    return tuple(average if name == AVERAGE else Entry(theirs.get(name)) for name in columns)
