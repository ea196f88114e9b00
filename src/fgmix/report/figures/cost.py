"""Time of a step over ERM's."""

from __future__ import annotations

import numpy as np

from fgmix.analysis import arrays as kinds
from fgmix.plots.looks import method_look
from fgmix.report.charts import Axis, Chart, Line, Mark, Panel, Points
from fgmix.report.figures.shared import INK, ink, names_axis


def cost(id: str, arrays: kinds.Cost, command: str) -> Chart:
    """A bar for each method, the dearest last."""
    order = np.argsort(arrays.value[:, 0], kind="stable")
    marks: list[Mark] = []
    labels = [str(label) for label in arrays.rows[order]]
    for place, (label, (ours, theirs)) in enumerate(zip(labels, arrays.value[order])):
        look = method_look(label)
        text = f"{label}: {ours:.2f} of ERM's step" + ("" if np.isnan(theirs) else f"; paper {theirs:.2f}")
        marks.append(Line("", [0, ours], [place, place], ink(look.colour), width=8, text=text))
        if np.isfinite(theirs):
            marks.append(Points("paper", [theirs], [place], INK, "D", [text]))
    x = Axis(arrays.title, low=0.0)
    return Chart(
        id,
        "Cost",
        "Bars: ours. Diamonds: the paper's.",
        [Panel("", x, names_axis(labels, flipped=True), marks)],
        command=command,
    )
