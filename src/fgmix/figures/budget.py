"""Budget: accuracy and calibration error of every method against the compute of its training."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from fgmix.figures.arrays import Bools, Findings, Floats, Texts
from fgmix.figures.description import Axis, Chart, Mark, Panel, Points, to_ink
from fgmix.figures.looks import assign_looks
from fgmix.records.rows import Row, label_row
from fgmix.records.schema import RunRecord
from fgmix.results.costs import ERM, Costs
from fgmix.results.other_metrics import average_metric, collect_metrics
from fgmix.results.selection import Selected, Selection
from fgmix.results.tables import dataset_table


@dataclass(frozen=True, eq=False)
class Budget:
    """Compute of rows, and what they reach with it."""

    dataset: str  # its name
    metric: str  # what `accuracy` is, usually "accuracy"
    rows: Texts  # labels (r,)
    algorithms: Texts  # keys of their algorithms (r,)
    averaged: Bools  # whether the weights are averages (r,)
    compute: Floats  # samples that a run trains on, times the cost of a step relative to ERM's (r,)
    accuracy: Floats  # average over the test domains, in percent (r,)
    calibration_error: Floats  # likewise; NaN where it was not recorded (r,)


def collect_budgets(findings: Findings) -> Iterator[tuple[str, Budget]]:
    """Collect the rows of each dataset whose cost is known: from their records, or from measured times."""
    selection = findings.selection
    unseen = collect_metrics(selection)
    for dataset in findings.datasets:
        compute = _measure_compute(selection, dataset, findings.runs.costs)
        averages = {row.row: row.entries[-1].value for row in dataset_table(selection, dataset).rows}
        rows = [row for row, average in averages.items() if row in compute and average is not None]
        errors = [average_metric(unseen.get(dataset, {}).get(row, {}), "calibration_error").value for row in rows]
        if len(rows) > 1:
            yield (
                dataset,
                Budget(
                    dataset=dataset,
                    metric=selection.metric,
                    rows=np.array([label_row(selection.labels, row) for row in rows]),
                    algorithms=np.array([row.key for row in rows]),
                    averaged=np.array([row.model != "raw" for row in rows]),
                    compute=np.array([compute[row] for row in rows]),
                    accuracy=np.array([averages[row] for row in rows], dtype=np.float64),
                    calibration_error=np.array(errors, dtype=np.float64),  # None becomes NaN
                ),
            )


def _measure_compute(selection: Selection, dataset: str, costs: Costs | None) -> dict[Row, float]:
    """Average the compute of the selected runs of each row; without those of unknown cost."""
    runs: dict[Row, list[RunRecord]] = defaultdict(list)
    for cell, outcome in selection.cells.items():
        if cell.dataset == dataset and isinstance(outcome, Selected):
            runs[cell.row].append(outcome.record)
    compute = {}
    for row, records in runs.items():
        cost = records[0].cost or _divide_times(costs, row)
        if cost is not None:
            samples = [each.spec.steps * each.spec.batch_size * len(each.sources) for each in records]
            compute[row] = cost * fmean(samples)
    return compute


def _divide_times(costs: Costs | None, row: Row) -> float | None:
    times = {} if costs is None else costs.milliseconds
    time = times.get(Row(row.algorithm))
    return time / times[ERM] if time is not None and ERM in times else None


def describe_budget(arrays: Budget) -> Chart:
    """Describe a point for each row: its accuracy, and its calibration error where that is known, against compute."""
    panels = [
        Panel(title, Axis("Training samples × cost of a step (ERM = 1)", low=0.0), Axis("%"), _describe_rows(arrays, y))
        for title, y in (
            (f"Average {arrays.metric}", arrays.accuracy),
            ("Expected calibration error", arrays.calibration_error),
        )
        if np.isfinite(y).any()
    ]
    caption = (
        "Means over test domains and trials of the selected runs. Compute of one run: steps × samples per step × "
        "operations of a step relative to ERM's; a search takes as many times more as it has samples."
        f"{' Pale: averaged weights.' if arrays.averaged.any() else ''}"
    )
    return Chart(f"Accuracy and compute: {arrays.dataset}", caption, panels)


def _describe_rows(arrays: Budget, y: Floats) -> list[Mark]:
    looks = assign_looks(arrays.algorithms.tolist())
    marks: list[Mark] = []
    for label, key, faint, a, b in zip(arrays.rows, arrays.algorithms, arrays.averaged, arrays.compute, y):
        look = looks[str(key)]
        text = f"{label}: {b:.1f} % with {a:,.0f} samples of ERM"
        marks.append(Points(str(label), [a], [b], to_ink(look.colour), look.marker, [text], faint=bool(faint)))
    return marks
