"""Accuracy of variants, by test domain."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fgmix.analysis.arrays import Ablation
from fgmix.analysis.limits import same_span
from fgmix.plots.looks import method_looks
from fgmix.plots.style import PAGE, note, panels, styled

SPAN = "All axes span the same number of percentage points."


@styled
def ablation(arrays: Ablation) -> Figure:
    """A panel for each test domain and the average, a row for each method: a dot with its ±, hollow for the paper."""
    rows, columns = arrays.value.shape
    figure, axes = panels(columns, width=PAGE, height=1.0 + 0.22 * rows, sharey=True)
    looks = [method_looks(arrays.algorithms.tolist())[key] for key in arrays.algorithms.tolist()]
    for ax, name, value, spread, limits in zip(
        axes, arrays.columns, arrays.value.T, arrays.spread.T, same_span(arrays.value, arrays.spread)
    ):
        for place, (look, paper) in enumerate(zip(looks, arrays.published)):
            ax.errorbar(
                value[place],
                place,
                xerr=None if np.isnan(spread[place]) else spread[place],
                color=look.colour,
                marker=look.marker,
                markersize=2.8,
                markerfacecolor="white" if paper else look.colour,
                markeredgewidth=0.7,
                elinewidth=1.0,
                capsize=2.5,
                linestyle="none",
            )
        ax.set(xlim=limits, title=str(name), xlabel="Accuracy (%)")
        ax.xaxis.set_major_locator(MaxNLocator(3))
        ax.grid(axis="y", color="0.9", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(rows), [str(label) for label in arrays.rows])
    axes[0].set_ylim(rows - 0.4, -0.6)
    figure.suptitle(arrays.title, fontsize=9)
    hollow = "Hollow: the paper." if arrays.published.any() else ""
    note(figure, " ".join(filter(None, (arrays.about, SPAN, hollow))))
    return figure
