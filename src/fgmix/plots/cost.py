"""Time of a step relative to ERM's."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from fgmix.analysis.arrays import Cost
from fgmix.plots.looks import GREY, method_looks
from fgmix.plots.style import COLUMN, panels, styled
from fgmix.results.rounding import ratio_text


@styled
def cost(arrays: Cost) -> Figure:
    """A bar for each method, cheapest first, and a diamond where the paper has a number."""
    order = np.argsort(arrays.value[:, 0], kind="stable")
    ours, theirs = arrays.value[order, 0], arrays.value[order, 1]
    labels = [str(label) for label in arrays.rows[order]]
    places = np.arange(len(labels))
    figure, (ax,) = panels(1, width=COLUMN, height=0.9 + 0.17 * len(labels))
    looks = method_looks(arrays.algorithms.tolist())
    ax.barh(places, ours, color=[looks[key].colour for key in arrays.algorithms[order].tolist()], height=0.7)
    for place, value, end in zip(places, ours, np.fmax(ours, theirs)):
        ax.annotate(ratio_text(value), (end, place), (5, 0), textcoords="offset points", va="center", fontsize=6)
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
