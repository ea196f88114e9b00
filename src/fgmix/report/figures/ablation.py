"""Variants side by side."""

from __future__ import annotations

import numpy as np

from fgmix.analysis import arrays as kinds
from fgmix.analysis.limits import same_span
from fgmix.plots.looks import method_looks
from fgmix.report.charts import Axis, Chart, Line, Mark, Panel, Points
from fgmix.report.figures.shared import ink, names_axis, with_spread


def ablation(id: str, arrays: kinds.Ablation, command: str) -> Chart:
    """A panel for each column, a row for each method with its spread."""
    names = [str(label) for label in arrays.rows]
    panels = [
        Panel(
            str(column),
            Axis("Accuracy (%)", low=float(low), high=float(high)),
            names_axis(names, flipped=True),
            _marks(arrays, c),
        )
        for c, (column, (low, high)) in enumerate(zip(arrays.columns, same_span(arrays.value, arrays.spread)))
    ]
    paper = "Pale: the paper." if arrays.published.any() else ""
    caption = " ".join(filter(None, (arrays.about, "All axes span the same number of percentage points.", paper)))
    return Chart(id, f"Ablation: {arrays.title}", caption, panels, None, command, columns=min(3, len(panels)))


def _marks(arrays: kinds.Ablation, column: int) -> list[Mark]:
    marks: list[Mark] = []
    looks = method_looks(arrays.algorithms.tolist())
    for place, label in enumerate(map(str, arrays.rows)):
        look = looks[str(arrays.algorithms[place])]
        value, spread = float(arrays.value[place, column]), float(arrays.spread[place, column])
        text = f"{label}, {arrays.columns[column]}: {with_spread(value, spread)}"
        if np.isfinite(spread):
            ends = [value - spread, value + spread]
            marks.append(Line("", ends, [place, place], ink(look.colour), width=2, text=text))
        faint = bool(arrays.published[place])
        marks.append(Points("", [value], [place], ink(look.colour), look.marker, [text], faint=faint))
    return marks
