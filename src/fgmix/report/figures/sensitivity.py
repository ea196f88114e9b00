"""Accuracy by two settings."""

from __future__ import annotations

import numpy as np

from fgmix.analysis import arrays as kinds
from fgmix.report.charts import Chart, Panel
from fgmix.report.figures.shared import grid, names_axis, with_spread
from fgmix.results.rounding import DASH, accuracy_text


def sensitivity(id: str, arrays: kinds.Sensitivity, command: str) -> Chart:
    """A heat map with a cell for each combination."""
    name, _, _ = str(arrays.columns[0]).partition(" = ")
    heads = [str(column).removeprefix(f"{name} = ") for column in arrays.columns]
    text = [
        [f"{arrays.corner} = {row}, {column}: {with_spread(v, s)}" for column, v, s in zip(arrays.columns, *numbers)]
        for row, *numbers in zip(arrays.rows, arrays.value, arrays.spread)
    ]
    shown = [[DASH if np.isnan(v) else accuracy_text(v) for v in row] for row in arrays.value]
    cells = grid(arrays.value, text, float(np.nanmin(arrays.value)), float(np.nanmax(arrays.value)), shown)
    x, y = names_axis(heads, name), names_axis([str(row) for row in arrays.rows], arrays.corner, flipped=True)
    return Chart(id, arrays.title, "Accuracy (%) on the test domains.", [Panel("", x, y, [cells])], command=command)
