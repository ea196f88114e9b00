"""Variants side by side."""

from __future__ import annotations

import numpy as np

from fgmix.analysis import arrays as kinds
from fgmix.plots.looks import method_looks
from fgmix.report.charts import Axis, Chart, Line, Mark, Panel, Points
from fgmix.report.figures.shared import ink, names_axis, with_spread


def ablation(id: str, arrays: kinds.Ablation, command: str) -> Chart:
    """A place for each column, methods side by side within it, with their spreads."""
    marks: list[Mark] = []
    rows, columns = arrays.value.shape
    looks = method_looks(arrays.algorithms.tolist())
    for r, label in enumerate(map(str, arrays.rows)):
        look = looks[str(arrays.algorithms[r])]
        places = np.arange(columns) + 0.7 * ((r + 0.5) / rows - 0.5)
        texts = [
            f"{label}, {column}: {with_spread(*pair)}"
            for column, *pair in zip(arrays.columns, arrays.value[r], arrays.spread[r])
        ]
        for place, value, spread in zip(places, arrays.value[r], arrays.spread[r]):
            if np.isfinite(spread):
                marks.append(Line(label, [place, place], [value - spread, value + spread], ink(look.colour), width=1))
        marks.append(
            Points(
                label, places, arrays.value[r], ink(look.colour), look.marker, texts, faint=bool(arrays.published[r])
            )
        )
    panel = Panel("", names_axis([str(column) for column in arrays.columns]), Axis("Accuracy (%)"), marks)
    paper = " Pale: the paper." if arrays.published.any() else ""
    caption = f"Lines: {arrays.about}.{paper}" if arrays.about else paper.strip()
    return Chart(id, f"Ablation: {arrays.title}", caption, [panel], command=command)
