"""Time of a step relative to ERM."""

from __future__ import annotations

import numpy as np

from fgmix.analysis import arrays as kinds
from fgmix.plots.looks import OURS
from fgmix.report.charts import Axis, Chart, Line, Mark, Panel, Points, Words
from fgmix.report.figures.shared import INK, names_axis
from fgmix.results.rounding import ratio_text


def cost(id: str, arrays: kinds.Cost, command: str) -> Chart:
    """A bar for each method with its value, the most expensive last; below it, the paper's value, if any."""
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
        marks.append(Points("paper", theirs[known], places[known] + 0.28, INK, "D", texts))
        marks.append(
            Words(theirs[known] + 1.4 * gap, places[known] + 0.28, list(map(ratio_text, theirs[known])), "start")
        )
    x = Axis(arrays.title, low=0.0, high=1.15 * float(np.nanmax(arrays.value)))
    caption = "Bars: measured here." + (" Diamonds: the paper." if known.any() else "")
    return Chart(id, "Cost", caption, [Panel("", x, names_axis(labels, flipped=True), marks)], command=command)
