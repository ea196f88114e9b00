"""Time of a step over ERM's."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from fgmix.analysis.arrays import Cost
from fgmix.plots.looks import GREY, method_look
from fgmix.plots.style import COLUMN, panels, styled


@styled
def cost(arrays: Cost) -> Figure:
    """A bar for each method, cheapest first, and a diamond where the paper has a number."""
    order = np.argsort(arrays.value[:, 0], kind="stable")
    ours, theirs = arrays.value[order, 0], arrays.value[order, 1]
    labels = [str(label) for label in arrays.rows[order]]
    places = np.arange(len(labels))
    figure, (ax,) = panels(1, width=COLUMN, height=0.9 + 0.17 * len(labels))
    ax.barh(places, ours, color=[method_look(label).colour for label in labels], height=0.7)
    for place, value, end in zip(places, ours, np.fmax(ours, theirs)):
        ax.annotate(f"{value:.2f}", (end, place), (5, 0), textcoords="offset points", va="center", fontsize=6)
    if np.isfinite(theirs).any():
        ax.scatter(theirs, places, marker="D", s=12, facecolor="white", edgecolor="black", linewidth=0.8, zorder=3)
        ax.scatter([], [], marker="D", s=12, facecolor="white", edgecolor="black", linewidth=0.8, label="paper")
        ax.legend(loc="upper right")
    ax.axvline(1, color=GREY, linewidth=0.6, linestyle=":")
    ax.set_yticks(places, labels)
    ax.invert_yaxis()
    ax.margins(x=0.12)
    ax.set_xlim(left=0)
    ax.set_xlabel(arrays.title)
    return figure
