"""Metrics on unseen domains as Markdown tables, for runs and for model cards, and the summary of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fgmix.records.metrics import NAMES, Metric, Metrics, unbalanced
from fgmix.records.schema import RunRecord
from fgmix.results.rounding import DASH

MOST_COLUMNS = 12  # classes of a printed confusion matrix
MOST_ROWS = 32  # classes whose recall is printed
Plain = Callable[[str], str]


def percent(share: float | None) -> str:
    """A fraction in percent.

    >>> percent(0.625), percent(None)
    ('62.5 %', '–')
    """
    return DASH if share is None else f"{100 * share:.1f} %"


def metrics_table(found: Mapping[str, Metrics], plain: Plain = str) -> str:
    """A row of metrics for each domain.

    Args:
        found: metrics by domain.
        plain: escapes names for the place where the table is shown.
    """
    rows = [
        [
            plain(domain),
            str(m.samples),
            *map(percent, (m.majority, m.accuracy, m.balanced_accuracy, m.macro_f1)),
            DASH if m.auroc is None else f"{m.auroc:.3f}",
        ]
        for domain, m in found.items()
    ]
    head = ["Domain", "samples", "majority class", "accuracy", "balanced accuracy", "macro F1", "AUROC"]
    return table(head, rows)


def worst_domain(found: Mapping[str, Metrics], metric: Metric) -> str:
    """The domain on which the metric is lowest."""
    return min(found, key=lambda domain: found[domain].value(metric))


def recall_table(classes: Sequence[str], found: Mapping[str, Metrics], plain: Plain = str) -> str:
    """Recall of each class in each domain; with more than `MOST_ROWS` classes, those with the lowest mean recall."""
    rows: list[tuple[float, list[str]]] = []
    for c, name in enumerate(classes):
        values = [m.recall[c] for m in found.values()]
        known = [value for value in values if value is not None]
        rows.append((float(np.mean(known)) if known else 1.0, [plain(name), *map(percent, values)]))
    if len(rows) > MOST_ROWS:
        rows = sorted(rows, key=lambda row: row[0])[:MOST_ROWS]
    return table(["Recall of class", *map(plain, found)], [cells for _, cells in rows])


def pooled_confusion(found: Mapping[str, Metrics]) -> list[list[int]]:
    """Confusion matrix of all domains together; empty if there is none."""
    matrices = [np.array(m.confusion) for m in found.values() if m.confusion]
    summed: list[list[int]] = np.sum(matrices, axis=0).tolist() if matrices else []
    return summed


def confusion_table(classes: Sequence[str], matrix: Sequence[Sequence[int]], plain: Plain = str) -> str:
    """A confusion matrix: true classes as rows, predicted ones as columns; empty for too many classes to print."""
    if not matrix or len(classes) > MOST_COLUMNS:
        return ""
    rows = [[plain(name), *map(str, row)] for name, row in zip(classes, matrix, strict=True)]
    return table(["True class \\ predicted", *map(plain, classes)], rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose first column is text and whose others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def summarize_run(record: RunRecord) -> list[str]:
    """Summarize a finished run: scores of the selected models, and its folder."""
    if record.status == "diverged":
        return [f"The loss was not finite at step {record.diverged_at}: the run diverged.", f"Run: {record.folder}"]
    lines = []
    for model in record.models:
        best = record.selected(model)
        validation = 100 * best.validation(record.sources, model)
        lines.append(f"{model}: best validation {NAMES[record.spec.metric]} {validation:.1f} % at step {best.step}")
        for name, parts in best.accuracy[model].items():
            role = "source" if name in record.sources else "test"
            scores = ", ".join(f"{part} {100 * value:.1f} %" for part, value in sorted(parts.items()))
            lines.append(f"  {name} ({role}): {scores}")
    longer = ["Still improving at the last step: raise --steps."] if record.still_improving else []
    return [*lines, *_describe_unseen(record), *longer, f"Run: {record.folder}"]


def _describe_unseen(record: RunRecord) -> list[str]:
    """List all metrics of the run's final model (averaged if there is one) on the test domains."""
    model = record.models[-1]
    metrics = record.unseen.get(model, {})
    if not metrics:
        return []
    confusion = confusion_table(record.classes, pooled_confusion(metrics))
    tables = [metrics_table(metrics), recall_table(record.classes, metrics), *([confusion] if confusion else [])]
    rows = [sum(row) for row in pooled_confusion(metrics)]
    suggestion = "The classes are unbalanced, which accuracy hides: consider --metric balanced_accuracy."
    advised = rows and unbalanced(rows) and record.spec.metric == "accuracy"
    return [f"{model} on the test domains (the part that tables report):", *tables, *([suggestion] if advised else [])]
