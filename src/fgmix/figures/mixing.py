"""Mixing: what mixed codes are worth, against the share of them that is extrapolated, a point for each run.

A code that is extrapolated away from the boundary has a small loss: the share alone does not tell what the base model
learns from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fgmix.figures.arrays import Findings, Floats, Ints, Texts
from fgmix.figures.curves import COUNT, name_metric
from fgmix.figures.description import Axis, Chart, Mark, Panel, Points, thin, to_ink
from fgmix.figures.looks import assign_looks
from fgmix.records.rows import label_row, record_row
from fgmix.records.schema import RunRecord

SHARE = "extrapolated"
SHOWN = ("mixed_loss", "mixed_margin", "flat")  # a panel for each that some run has recorded


@dataclass(frozen=True, eq=False)
class Mixing:
    """Metrics of mixed codes in the last steps of runs."""

    dataset: str  # its name
    methods: Texts  # labels of methods and arms (m,)
    algorithms: Texts  # their keys (m,)
    method: Ints  # of each run (n,)
    share: Floats  # of extrapolated codes, in percent (n,)
    metrics: Texts  # names of the metrics (q,)
    values: Floats  # NaN where a run did not record it (q, n)


def collect_mixing(findings: Findings) -> Iterator[tuple[str, Mixing]]:
    """Collect the runs of each dataset that mixed codes until the end."""
    for dataset in findings.datasets:
        runs = [each for each in findings.runs.records if each.dataset == dataset]
        found = [(record_row(run), metrics) for run in runs if (metrics := _read_last(run))]
        known = [name for name in SHOWN if any(name in metrics for _, metrics in found)]
        if known:
            rows = list(dict.fromkeys(row for row, _ in found))
            values = [[metrics.get(name, np.nan) for _, metrics in found] for name in known]
            yield (
                dataset,
                Mixing(
                    dataset=dataset,
                    methods=np.array([label_row(findings.selection.labels, row) for row in rows]),
                    algorithms=np.array([row.key for row in rows]),
                    method=np.array([rows.index(row) for row, _ in found]),
                    share=100 * np.array([metrics[SHARE] for _, metrics in found]),
                    metrics=np.array([name_metric(name) for name in known]),
                    values=np.array(values),
                ),
            )


def _read_last(run: RunRecord) -> dict[str, float]:
    """Read the metrics of the steps before the last evaluation that mixed; empty if none did."""
    if not run.evaluations:
        return {}
    last = run.evaluations[-1].metrics
    if SHARE not in last or not last.get(COUNT):
        return {}
    most = max(evaluation.metrics.get(COUNT, 0.0) for evaluation in run.evaluations)
    part = last[COUNT] / most  # of the steps; the others count as 0 in the means
    return {name: last[name] / part for name in (SHARE, *SHOWN) if name in last}


def describe_mixing(arrays: Mixing) -> Chart:
    """Describe a panel for each metric, with a point for each run."""
    x = Axis("Extrapolated codes (%)")
    panels = [
        Panel(str(name), x, Axis(), _describe_runs(arrays, values))
        for name, values in zip(arrays.metrics, arrays.values)
    ]
    caption = (
        "Every run, of every trial, test domain and hyper-parameter sample: means over the steps before its last "
        "evaluation."
    )
    return Chart(f"Mixed codes: {arrays.dataset}", caption, panels)


def _describe_runs(arrays: Mixing, values: Floats) -> list[Mark]:
    looks = assign_looks(arrays.algorithms.tolist())
    marks: list[Mark] = []
    for m, (label, key) in enumerate(zip(map(str, arrays.methods), map(str, arrays.algorithms))):
        own = thin(np.flatnonzero((arrays.method == m) & np.isfinite(values)))
        if len(own):
            texts = [f"{label}: {b:.3g} at {a:.1f} % extrapolated" for a, b in zip(arrays.share[own], values[own])]
            look = looks[key]
            marks.append(Points(label, arrays.share[own], values[own], to_ink(look.colour), look.marker, texts))
    return marks
