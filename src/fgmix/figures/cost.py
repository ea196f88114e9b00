"""Cost: the time of a training step relative to ERM's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fgmix.figures.arrays import Findings, Numbers
from fgmix.figures.description import INK, Axis, Chart, Line, Mark, Panel, Points, Words, list_names
from fgmix.figures.looks import OURS
from fgmix.records.rows import label_row
from fgmix.results.costs import ERM, Costs
from fgmix.results.published import step_milliseconds
from fgmix.results.rounding import ratio_text


class Cost(Numbers):
    """Time of a step relative to ERM: ours, and the paper's."""


def collect_costs(findings: Findings) -> Iterator[tuple[str, Cost]]:
    """Collect the times per step, if they were measured, for ERM too."""
    costs = findings.runs.costs
    if costs is not None and ERM in costs.milliseconds:
        yield "", divide_costs(costs)


def divide_costs(costs: Costs) -> Cost:
    """Divide the times per step by ERM's, ours and the paper's."""
    ours, theirs = costs.milliseconds, step_milliseconds()
    value = np.array(
        [
            [time / ours[ERM], theirs[method] / theirs[ERM] if method in theirs else np.nan]
            for method, time in ours.items()
        ]
    )
    return Cost(
        title="Time of a training step ÷ ERM's",
        corner="Method",
        rows=np.array([label_row(costs.labels, method) for method in ours]),
        algorithms=np.array([method.algorithm for method in ours]),
        published=np.full(len(ours), False),
        columns=np.array(["ours", "paper"]),
        value=value,
        spread=np.full_like(value, np.nan),
    )


def describe_cost(arrays: Cost) -> Chart:
    """Describe a bar for each algorithm with its value, the most expensive last; below it, the paper's value, if any.

    All bars have the colour of our measurements: there are more algorithms than colours.
    """
    order = np.argsort(arrays.value[:, 0], kind="stable")
    ours, theirs = arrays.value[order].T
    labels = [str(label) for label in arrays.rows[order]]
    places = np.arange(len(labels))
    known = np.isfinite(theirs)
    gap = 0.015 * float(np.nanmax(arrays.value))
    marks: list[Mark] = []
    for place, label, value in zip(places, labels, ours):
        text = f"{label}: {ratio_text(value)} × the time of a step of ERM"
        marks.append(Line("here", [0, value], [place - 0.12, place - 0.12], OURS, width=8, text=text))
    marks.append(Words(ours + gap, places - 0.12, list(map(ratio_text, ours)), "start"))
    if known.any():
        texts = [f"{labels[i]}, paper: {ratio_text(theirs[i])}" for i in places[known]]
        x, y = theirs[known], places[known] + 0.28
        marks.append(Points("paper", x, y, INK, "D", texts))
        marks.append(Words(x + 1.4 * gap, y, list(map(ratio_text, x)), "start"))
    axis = Axis(arrays.title, low=0.0, high=1.15 * float(np.nanmax(arrays.value)))
    caption = "Bars: measured here." + (" Diamonds: the paper." if known.any() else "")
    return Chart("Cost", caption, [Panel("", axis, list_names(labels, flipped=True), marks)])
