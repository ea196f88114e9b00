"""Time of a step relative to ERM's."""

from __future__ import annotations

import numpy as np

from fgmix.analysis import arrays as kinds
from fgmix.plots.looks import method_looks
from fgmix.report.charts import Axis, Chart, Line, Mark, Panel, Points
from fgmix.report.figures.shared import INK, ink, names_axis
from fgmix.results.rounding import ratio_text


def cost(id: str, arrays: kinds.Cost, command: str) -> Chart:
    """A bar for each method, the most expensive last."""
    order = np.argsort(arrays.value[:, 0], kind="stable")
    marks: list[Mark] = []
    labels = [str(label) for label in arrays.rows[order]]
    looks = method_looks(arrays.algorithms.tolist())
    for place, (label, key, (ours, theirs)) in enumerate(zip(labels, arrays.algorithms[order], arrays.value[order])):
        paper = "" if np.isnan(theirs) else f"; paper: {ratio_text(theirs)}"
        text = f"{label}: {ratio_text(ours)} × the time of a step of ERM{paper}"
        marks.append(Line("", [0, ours], [place, place], ink(looks[str(key)].colour), width=8, text=text))
        if np.isfinite(theirs):
            marks.append(Points("paper", [theirs], [place], INK, "D", [text]))
    x = Axis(arrays.title, low=0.0)
    return Chart(
        id,
        "Cost",
        "Bars: measured here. Diamonds: the paper.",
        [Panel("", x, names_axis(labels, flipped=True), marks)],
        command=command,
    )
