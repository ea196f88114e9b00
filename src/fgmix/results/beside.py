"""The paper's rows under ours: `fgmix report --published`."""

from __future__ import annotations

from dataclasses import replace

from fgmix.results.labels import method_label, paper_domain, split_origin
from fgmix.results.published import AVERAGE, accuracies, overall
from fgmix.results.selection import Method
from fgmix.results.tables import Entry, Row, Table

PAPER = "paper"  # the source of a row
ABOUT = (
    "Rows marked (paper) are published numbers; their ± is a standard error where the paper cites another, else a "
    "standard deviation over its five trials (ours with --spread std)."
)


def beside(table: Table) -> Table:
    """A table of `dataset_table` or `overall_table` with the paper's row under each of ours that it has.

    The caption says which methods or datasets the paper does not have, and which preset runs those that it has.
    """
    rows: list[Row] = []
    lacking: list[Method] = []
    shown: set[Method] = set()
    for row in table.rows:
        method = Method(split_origin(row.method.algorithm)[0], row.method.model)
        theirs = _entries(table, method)
        rows.append(row)
        if not any(entry.value is not None for entry in theirs):
            lacking.append(row.method)
        elif method not in shown:  # once, where several folders have it
            shown.add(method)
            rows.append(Row(method, theirs, source=PAPER))
    notes = [table.caption, ABOUT if len(rows) > len(table.rows) else "", _lacking(table, lacking)]
    return replace(table, rows=tuple(rows), caption=" ".join(filter(None, notes)))


def _lacking(table: Table, methods: list[Method]) -> str:
    """What the paper does not have of a table, and how to run what it has."""
    if not methods:
        return ""
    names = ", ".join(method_label(table.labels, *method) for method in methods)
    datasets = [name for name in next(iter(overall().values())) if name != AVERAGE]
    if len(methods) < len(table.rows):
        return f"The paper has no numbers of {names}."
    return (
        f"The paper has no numbers for these rows. Its datasets are {', '.join(datasets)}: run its methods on them "
        "with fgmix sweep --preset paper-overall."
    )


def _entries(table: Table, method: Method) -> tuple[Entry, ...]:
    if table.dataset is None:
        return _overall_entries(method, table.columns)
    columns = [AVERAGE if name == AVERAGE else paper_domain(table.dataset, name) for name in table.columns]
    complete = None not in columns  # else the paper's average is over other domains than ours
    found = accuracies()
    return tuple(
        Entry(*found.get((table.dataset, method, name), ())) if name and (complete or name != AVERAGE) else Entry()
        for name in columns
    )


def _overall_entries(method: Method, columns: tuple[str, ...]) -> tuple[Entry, ...]:
    """The paper's average is over its five datasets; over fewer, it is the mean of those shown."""
    theirs = overall().get(method, {})
    datasets = [name for name in columns if name != AVERAGE]
    values = [theirs[name] for name in datasets if name in theirs]
    if len(values) < len(datasets) or not values:
        average = Entry()
    else:
        average = Entry(theirs[AVERAGE] if len(values) == len(theirs) - 1 else sum(values) / len(values))
    return tuple(average if name == AVERAGE else Entry(theirs.get(name)) for name in columns)
