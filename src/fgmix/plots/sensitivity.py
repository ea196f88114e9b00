"""Accuracy by two settings, as a heat map."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from fgmix.analysis.arrays import Sensitivity
from fgmix.plots.style import COLUMN, panels, styled
from fgmix.results.rounding import DASH, accuracy_text


@styled
def sensitivity(arrays: Sensitivity) -> Figure:
    """One cell per combination, with its accuracy."""
    rows, columns = arrays.value.shape
    figure, (ax,) = panels(1, width=COLUMN, height=1.1 + 0.32 * rows)
    image = ax.imshow(np.ma.masked_invalid(arrays.value), cmap="cividis", aspect="auto")
    middle = (np.nanmin(arrays.value) + np.nanmax(arrays.value)) / 2
    for r in range(rows):
        for c in range(columns):
            value = arrays.value[r, c]
            text = DASH if np.isnan(value) else accuracy_text(value)
            ax.text(c, r, text, ha="center", va="center", color="black" if not value < middle else "white", fontsize=7)
    # The name in "α = 0.1" is the label of the axis.
    name, _, _ = str(arrays.columns[0]).partition(" = ")
    ax.set_xticks(range(columns), [str(column).removeprefix(f"{name} = ") for column in arrays.columns])
    ax.set_yticks(range(rows), [str(row) for row in arrays.rows])
    ax.set(xlabel=name, ylabel=arrays.corner)
    ax.set_title(arrays.title)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    figure.colorbar(image, ax=ax, label="Accuracy (%)")
    return figure
