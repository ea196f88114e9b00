"""The critical-difference diagram: average ranks on a line, bars over methods without a significant difference.

Demšar, "Statistical Comparisons of Classifiers over Multiple Data Sets", 2006, https://jmlr.org/papers/v7/demsar06a.html.
"""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fgmix.analysis.arrays import Ranks
from fgmix.plots.looks import GREY, method_looks
from fgmix.plots.style import PAGE, note, panels, styled
from fgmix.results.rounding import p_equation, rank_text

STEP = 0.5  # height of a line of text, in data units


@styled
def cd(arrays: Ranks) -> Figure:
    """Best ranks on the left, the name of each method at the end of a line; bars join methods without a significant
    difference by Nemenyi's test."""
    m = len(arrays.ranks)
    left = math.ceil(m / 2)
    bars = len(arrays.cliques)
    depth = 0.35 + 0.25 * bars
    bottom = -(depth + STEP * left)
    figure, (ax,) = panels(1, width=PAGE, height=0.55 + 0.28 * (1.4 - bottom))
    low, high = 1.0, float(max(m, 2))
    span = high - low
    ax.set(xlim=(low - 0.3 * span, high + 0.3 * span), ylim=(bottom - 0.2, 1.4))
    ax.set_axis_off()
    _scale(ax, m)
    _difference(ax, arrays.critical_difference)
    looks = method_looks(arrays.algorithms.tolist())
    for i, (label, key, rank) in enumerate(zip(arrays.methods.tolist(), arrays.algorithms.tolist(), arrays.ranks)):
        row = i if i < left else m - 1 - i
        side, end = ("right", low - 0.03 * span) if i < left else ("left", high + 0.03 * span)
        y = -(depth + STEP * (row + 0.5))
        ax.plot([rank, rank, end], [0, y, y], color=looks[key].colour, linewidth=0.8, clip_on=False)
        ax.text(end, y, f" {label} ({rank_text(rank)}) ", ha=side, va="center", color="black")
    for b, (first, last) in enumerate(arrays.cliques):
        y = -0.25 - 0.25 * b
        margin = 0.006 * span
        ax.plot(
            [arrays.ranks[first] - margin, arrays.ranks[last] + margin],
            [y, y],
            color="black",
            linewidth=3,
            solid_capstyle="butt",
        )
    ax.set_title(f"Average rank over {arrays.pairs} trials and test domains (Friedman, {p_equation(arrays.p)})")
    if arrays.not_ranked:
        note(figure, arrays.not_ranked)
    return figure


def _scale(ax: Axes, m: int) -> None:
    ax.plot([1, max(m, 2)], [0, 0], color="black", linewidth=0.8)
    for rank in range(1, max(m, 2) + 1):
        ax.plot([rank, rank], [0, 0.15], color="black", linewidth=0.8)
        ax.text(rank, 0.2, str(rank), ha="center", va="bottom", fontsize=7)


def _difference(ax: Axes, critical_difference: float) -> None:
    """A bar of the length of the critical difference."""
    ax.plot([1, 1 + critical_difference], [0.95, 0.95], color=GREY, linewidth=1.2, marker="|", markersize=5)
    text = f"CD = {rank_text(critical_difference)}"
    ax.text(1 + critical_difference / 2, 1.02, text, ha="center", va="bottom", fontsize=7)
