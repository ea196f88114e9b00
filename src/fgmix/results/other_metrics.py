"""Metrics besides accuracy: tables of a report, Markdown tables for runs and model cards, the summary of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from statistics import fmean

import numpy as np

from fgmix.records.evaluations import METRIC_NAMES, Metric, Metrics
from fgmix.records.metrics import is_unbalanced, pooled_confusion
from fgmix.records.rows import Row, shorten_labels
from fgmix.records.schema import RunRecord
from fgmix.results.rounding import DASH, accuracy_text
from fgmix.results.selection import Selected, Selection
from fgmix.results.tables import Entry, Table, TableRow, drop_empty, order_rows

COLUMNS = (
    "Accuracy",
    "Balanced accuracy",
    "Macro F1",
    "AUROC",
    "Calibration error",
    "Lowest recall of a class",
    "Worst domain",
)
MOST_CLASSES = 20  # columns of a table of recalls
MOST_COLUMNS = 12  # classes or domains of a printed table
MOST_ROWS = 32  # classes whose recall is printed

ByDomain = Mapping[str, Sequence[Metrics]]  # those of all trials
Plain = Callable[[str], str]  # escapes names for the place where a table is shown


# Tables of a report


def metrics_tables(selection: Selection) -> list[Table]:
    """Make the tables of each dataset whose reported runs have these metrics, which records of older versions lack.

    The second one, of recalls, is made for datasets with few classes. Runs store the metrics for the weights that
    training-domain validation selects: for other rules there are no tables.
    """
    # Runs that are selected together have the same metric.
    runs = {cell.dataset: each.record for cell, each in selection.cells.items() if isinstance(each, Selected)}
    tables = []
    for dataset, of_rows in collect_metrics(selection).items():
        rows = {row: of_rows[row] for row in order_rows(selection, dataset=dataset) if row in of_rows}
        metric, classes = runs[dataset].spec.metric, runs[dataset].classes
        caption = (
            "Means over test domains and trials, in percent, on the part of the test domain that is reported. "
            "Always predicting the most frequent class of each domain is correct for "
            f"{_write_majority(rows.values())} of the samples. AUROC: one class against the rest, mean over classes. "
            f"Lowest recall: of the class that is found least. Worst domain: that of the lowest {METRIC_NAMES[metric]}."
        )
        if any(m.calibration_error is not None for of in rows.values() for each in of.values() for m in each):
            caption += " Calibration error: expected difference between confidence and accuracy."
        labels = shorten_labels(selection.labels, rows)
        cells = tuple(TableRow(row, _metric_entries(domains, metric)) for row, domains in rows.items())
        table = Table(f"{dataset}: other metrics", caption, COLUMNS, cells, labels, best=False)
        tables.append(drop_empty(table))
        if 0 < len(classes) <= MOST_CLASSES:
            caption = "Share of the samples of a class that are found, in percent; means over test domains and trials."
            cells = tuple(TableRow(row, _recall_entries(domains, len(classes))) for row, domains in rows.items())
            tables.append(Table(f"{dataset}: recall by class", caption, classes, cells, labels, best=False))
    return tables


def collect_metrics(selection: Selection) -> dict[str, dict[Row, dict[str, list[Metrics]]]]:
    """Collect the metrics of the reported runs, by dataset, row and test domain; none for other rules."""
    by_dataset: dict[str, dict[Row, dict[str, list[Metrics]]]] = defaultdict(dict)
    for cell, outcome in selection.cells.items():
        if selection.rule == "training_domain" and isinstance(outcome, Selected):
            metrics = outcome.record.unseen.get(cell.row.model, {}).get(cell.test_domain)
            if metrics:
                domains = by_dataset[cell.dataset].setdefault(cell.row, {})
                domains.setdefault(cell.test_domain, []).append(metrics)
    return by_dataset


def _write_majority(rows: Iterable[ByDomain]) -> str:
    """Write the share of the most frequent class; the lowest and the highest where rows have other domains."""
    shares = sorted({average_metric(domains, "majority").shown for domains in rows}, key=float)
    return f"{' to '.join(dict.fromkeys([shares[0], shares[-1]]))} %"


def average_metric(domains: ByDomain, name: str) -> Entry:
    """Average a metric over the trials of each domain, then over domains, in percent."""
    return _average((map(attrgetter(name), each) for each in domains.values()), "not recorded")


def _metric_entries(domains: ByDomain, metric: Metric) -> tuple[Entry, ...]:
    def average(value: Callable[[Metrics], float | None]) -> Entry:
        return _average((map(value, each) for each in domains.values()), "no domain has two classes")

    values = {name: fmean(m.value(metric) for m in each) for name, each in domains.items()}
    worst = min(values, key=values.__getitem__)
    lowest = 100 * values[worst]
    return (
        average(lambda m: m.accuracy),
        average(lambda m: m.balanced_accuracy),
        average(lambda m: m.macro_f1),
        average(lambda m: m.auroc),
        average_metric(domains, "calibration_error"),
        average(lambda m: min(value for value in m.recall if value is not None)),
        Entry(lowest, text=f"{worst} {accuracy_text(lowest)}"),
    )


def _recall_entries(domains: ByDomain, classes: int) -> tuple[Entry, ...]:
    return tuple(
        _average(([m.recall[c] for m in each] for each in domains.values()), "no test domain has this class")
        for c in range(classes)
    )


def _average(by_domain: Iterable[Iterable[float | None]], note: str) -> Entry:
    """Average over the trials of each domain, then over the domains that have a value; the note if none has."""
    known = [[value for value in values if value is not None] for values in by_domain]
    means = [fmean(values) for values in known if values]
    return Entry(100 * fmean(means)) if means else Entry(note=note)


# Markdown tables of unseen domains


def percent(share: float | None) -> str:
    """Print a fraction in percent.

    >>> percent(0.625), percent(None)
    ('62.5 %', '–')
    """
    return DASH if share is None else f"{100 * share:.1f} %"


def metrics_table(domains: Mapping[str, Metrics], plain: Plain = str) -> str:
    """Make a table with a row of metrics for each domain."""
    rows = [
        [
            plain(domain),
            str(m.samples),
            *map(percent, (m.majority, m.accuracy, m.balanced_accuracy, m.macro_f1, m.auroc)),
        ]
        for domain, m in domains.items()
    ]
    head = ["Domain", "samples", "majority class", "accuracy", "balanced accuracy", "macro F1", "AUROC"]
    return table(head, rows)


def worst_domain(domains: Mapping[str, Metrics], metric: Metric) -> str:
    """Return the domain on which the metric is lowest."""
    return min(domains, key=lambda domain: domains[domain].value(metric))


def recall_table(classes: Sequence[str], domains: Mapping[str, Metrics], plain: Plain = str) -> str:
    """Make a table of the recall of each class in each domain.

    With more than `MOST_ROWS` classes it has those with the lowest mean recall.
    """
    rows: list[tuple[float, list[str]]] = []
    for c, name in enumerate(classes):
        values = [m.recall[c] for m in domains.values()]
        known = [value for value in values if value is not None]
        rows.append((float(np.mean(known)) if known else 1.0, [plain(name), *map(percent, values)]))
    if len(rows) > MOST_ROWS:
        rows = sorted(rows, key=lambda row: row[0])[:MOST_ROWS]
    return table(["Recall of class", *map(plain, domains)], [cells for _, cells in rows])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Make a Markdown table whose first column is text and whose others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def summarize_run(record: RunRecord) -> tuple[list[str], str, str]:
    """Summarize a finished run: lines of accuracies, a Markdown table of other metrics, and a line with its folder.

    Of a source domain the holdout part is reported, of a test domain the part that tables report.
    """
    if record.status == "diverged":
        lines = [f"The loss was not finite at step {record.diverged_at}: the run diverged."]
        return lines, "", f"Run: {record.folder}"
    shown = [(model, *record.best(model)) for model in record.models]
    metrics = record.unseen.get(record.models[-1], {})  # of the averaged model, if there is one
    confusion = pooled_confusion({name: metrics[name] for name in record.spec.test_domains if name in metrics})
    is_misleading = record.spec.metric == "accuracy" and bool(confusion) and is_unbalanced([*map(sum, confusion)])
    rises = record.still_improving
    lines = []
    for model, place, validation in shown:
        best = record.evaluations[place]
        metric = METRIC_NAMES[record.spec.metric]
        lines.append(f"{model}, step {best.step:,} (selected by validation {metric}, {percent(validation)})")
        parts = best.accuracy[model]
        lines += [f"  {name} (test): {percent(parts[name]['train'])}" for name in parts if name not in record.sources]
        lines += [f"  {name} (source): {percent(parts[name]['holdout'])}" for name in record.sources if name in parts]
    tables = f"Test domains, {record.models[-1]}:\n\n{metrics_table(metrics)}\n" if metrics else ""
    if is_misleading:
        tables += "\nThe classes are unbalanced, which accuracy hides: consider --metric balanced_accuracy.\n"
    if rises:
        tables += "\nStill improving at the last step: raise --steps.\n"
    return lines, tables, f"Run: {record.folder}"
