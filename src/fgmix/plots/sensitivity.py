"""Accuracy by two settings, as a heat map."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from fgmix.analysis.arrays import Sensitivity
from fgmix.plots.style import COLUMN, panels, styled


@styled
def sensitivity(arrays: Sensitivity) -> Figure:
    """One cell a combination, its number inside."""
    rows, columns = arrays.value.shape
    figure, (ax,) = panels(1, width=COLUMN, height=1.1 + 0.32 * rows)
    image = ax.imshow(np.ma.masked_invalid(arrays.value), cmap="cividis", aspect="auto")
    middle = (np.nanmin(arrays.value) + np.nanmax(arrays.value)) / 2
    for r in range(rows):
        for c in range(columns):
            value = arrays.value[r, c]
            text = "–" if np.isnan(value) else f"{value:.1f}"
            ax.text(c, r, text, ha="center", va="center", color="black" if not value < middle else "white", fontsize=7)
    # "α = 0.1" in every column says the name once too often
    name, _, _ = str(arrays.columns[0]).partition(" = ")
    ax.set_xticks(range(columns), [str(column).removeprefix(f"{name} = ") for column in arrays.columns])
    ax.set_yticks(range(rows), [str(row) for row in arrays.rows])
    ax.set(xlabel=name, ylabel=arrays.corner)
    ax.set_title(arrays.title)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    figure.colorbar(image, ax=ax, label="Accuracy (%)")
    return figure
