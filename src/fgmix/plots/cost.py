"""Time of a step relative to ERM."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fgmix.analysis.arrays import Cost
from fgmix.plots.looks import GREY, OURS
from fgmix.plots.style import COLUMN, panels, styled
from fgmix.results.rounding import ratio_text


@styled
def cost(arrays: Cost) -> Figure:
    """A bar for each method, cheapest first, with its value, and a diamond with the paper's value, if any.

    All bars have the colour of our measurements: there are more methods than colours.
    """
    order = np.argsort(arrays.value[:, 0], kind="stable")
    ours, theirs = arrays.value[order, 0], arrays.value[order, 1]
    labels = [str(label) for label in arrays.rows[order]]
    places = np.arange(len(labels))
    figure, (ax,) = panels(1, width=COLUMN, height=0.9 + 0.24 * len(labels))
    ax.barh(places - 0.12, ours, color=OURS, height=0.42, label="here")
    for place, value in zip(places, ours):
        _beside(ax, ratio_text(value), value, place - 0.12, OURS)
    known = np.isfinite(theirs)
    if known.any():
        ax.scatter(
            theirs[known],
            places[known] + 0.28,
            marker="D",
            s=9,
            facecolor="white",
            edgecolor="black",
            linewidth=0.7,
            label="paper",
        )
        for place, value in zip(places[known], theirs[known]):
            _beside(ax, ratio_text(value), value, place + 0.28, "black")
        ax.legend(loc="upper right")
    ax.axvline(1, color=GREY, linewidth=0.6, linestyle=":")
    ax.set_yticks(places, labels)
    ax.tick_params(axis="y", length=0)
    ax.invert_yaxis()
    ax.margins(x=0.14)
    ax.set_xlim(left=0)
    ax.set_xlabel(arrays.title)
    return figure


def _beside(ax: Axes, text: str, x: float, y: float, colour: str) -> None:
    """A value to the right of its mark."""
    ax.annotate(text, (x, y), (4, 0), textcoords="offset points", va="center", fontsize=5.5, color=colour)
