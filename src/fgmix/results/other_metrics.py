"""Tables of metrics besides accuracy: majority class, balanced accuracy, macro F1, AUROC, worst domain, recalls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from fgmix.records.metrics import NAMES, Metric, Metrics
from fgmix.records.rows import Row
from fgmix.records.schema import RunRecord
from fgmix.results.rounding import accuracy_text
from fgmix.results.selection import Cell, Selected, Selection
from fgmix.results.tables import Entry, Table, TableRow

COLUMNS = (
    "Majority class",
    "Accuracy",
    "Balanced accuracy",
    "Macro F1",
    "AUROC",
    "Lowest recall of a class",
    "Worst domain",
)
MOST_CLASSES = 20  # columns of a table of recalls


def metrics_tables(selection: Selection) -> list[Table]:
    """Tables for each dataset whose reported runs have these metrics, which records of older versions lack.

    The second one, of recalls, is made for datasets with few classes.

    Runs store them for the weights that training-domain validation selects: for other rules there are no tables.
    """
    if selection.rule != "training_domain":
        return []
    by_dataset: dict[str, dict[Row, dict[str, list[Metrics]]]] = defaultdict(dict)
    chosen: dict[str, RunRecord] = {}
    for cell, found in selection.cells.items():
        if isinstance(found, Selected) and (
            metrics := found.record.unseen.get(cell.row.model, {}).get(cell.test_domain)
        ):
            _domains(by_dataset[cell.dataset], cell).append(metrics)
            chosen[cell.dataset] = found.record  # runs that are selected together have the same metric
    tables = []
    for dataset, rows in by_dataset.items():
        tables.append(_table(selection, dataset, rows, chosen[dataset].spec.metric))
        classes = chosen[dataset].classes
        if 0 < len(classes) <= MOST_CLASSES:
            tables.append(_recalls(selection, dataset, rows, classes))
    return tables


def _domains(rows: dict[Row, dict[str, list[Metrics]]], cell: Cell) -> list[Metrics]:
    return rows.setdefault(cell.row, {}).setdefault(cell.test_domain, [])


def _table(selection: Selection, dataset: str, rows: dict[Row, dict[str, list[Metrics]]], metric: Metric) -> Table:
    return Table(
        title=f"{dataset}: other metrics",
        caption="Means over test domains and trials, in percent, on the part of the test domain that is reported. "
        "Majority class: share of the most frequent class, which is the accuracy of always predicting it. AUROC: one "
        "class against the rest, mean over classes. Lowest recall: of the class that is found least. Worst domain: "
        f"that of the lowest {NAMES[metric]}.",
        columns=COLUMNS,
        rows=tuple(TableRow(method, _entries(domains, metric)) for method, domains in rows.items()),
        labels=selection.labels,
        best=False,
    )


def _entries(domains: dict[str, list[Metrics]], chosen: Metric) -> tuple[Entry, ...]:
    def mean(values: dict[str, list[float]]) -> Entry:
        known = [fmean(found) for found in values.values() if found]
        return Entry(100 * fmean(known)) if known else Entry(note="no domain has two classes")

    values = {name: fmean(getattr(m, chosen) for m in found) for name, found in domains.items()}
    worst = min(values, key=values.__getitem__)
    lowest = 100 * values[worst]
    return (
        *(
            mean({name: [getattr(m, metric) for m in found] for name, found in domains.items()})
            for metric in ("majority", "accuracy", "balanced_accuracy", "macro_f1")
        ),
        mean({name: [m.auroc for m in found if m.auroc is not None] for name, found in domains.items()}),
        mean({name: [_lowest(m.recall) for m in found] for name, found in domains.items()}),
        Entry(lowest, text=f"{worst} {accuracy_text(lowest)}"),
    )


def _recalls(
    selection: Selection, dataset: str, rows: dict[Row, dict[str, list[Metrics]]], classes: tuple[str, ...]
) -> Table:
    return Table(
        title=f"{dataset}: recall by class",
        caption="Share of the samples of a class that are found, in percent; means over test domains and trials.",
        columns=classes,
        rows=tuple(TableRow(method, _recall_entries(domains, len(classes))) for method, domains in rows.items()),
        labels=selection.labels,
        best=False,
    )


def _recall_entries(domains: dict[str, list[Metrics]], classes: int) -> tuple[Entry, ...]:
    """The mean recall of each class over the domains that have it."""
    entries = []
    for c in range(classes):
        by_domain = [[recall for m in found if (recall := m.recall[c]) is not None] for found in domains.values()]
        known = [fmean(recalls) for recalls in by_domain if recalls]
        entries.append(Entry(100 * fmean(known)) if known else Entry(note="no test domain has this class"))
    return tuple(entries)


def _lowest(recall: Sequence[float | None]) -> float:
    return min(value for value in recall if value is not None)
