"""Accuracy of variants, by test domain."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fgmix.analysis.arrays import Ablation
from fgmix.plots.looks import method_looks
from fgmix.plots.style import PAGE, note, panels, styled

WIDTH = 0.7  # of a column that its dots take


@styled
def ablation(arrays: Ablation) -> Figure:
    """Dots with their ± side by side for each test domain and their average; hollow ones are the paper's."""
    rows, columns = arrays.value.shape
    figure, (ax,) = panels(1, width=PAGE, height=2.9)
    looks = method_looks(arrays.algorithms.tolist())
    for r, (label, key, paper) in enumerate(zip(arrays.rows.tolist(), arrays.algorithms.tolist(), arrays.published)):
        spread = arrays.spread[r]
        ax.errorbar(
            np.arange(columns) + WIDTH * ((r + 0.5) / rows - 0.5),
            arrays.value[r],
            yerr=None if np.isnan(spread).all() else np.nan_to_num(spread),
            color=looks[key].colour,
            marker=looks[key].marker,
            markersize=4.5,
            markerfacecolor="white" if paper else looks[key].colour,
            linestyle="none",
            elinewidth=0.9,
            label="_" if paper else label,  # "_": not in the legend
        )
    for edge in np.arange(1, columns) - 0.5:
        ax.axvline(edge, color="0.85", linewidth=0.6)
    ax.set_xlim(-0.5, columns - 0.5)
    ax.set_xticks(range(columns), [str(column) for column in arrays.columns])
    ax.tick_params(axis="x", length=0)
    ax.set_ylabel("Accuracy (%)")
    ax.set_title(arrays.title)
    handles, _ = ax.get_legend_handles_labels()
    if arrays.published.any():
        handles.append(
            Line2D([], [], marker="o", color="grey", markerfacecolor="white", linestyle="none", label="paper")
        )
    figure.legend(handles=handles, loc="outside upper center", ncols=9, columnspacing=1.0, handlelength=1.2)
    if arrays.about:
        note(figure, f"Lines: {arrays.about}.")
    return figure
