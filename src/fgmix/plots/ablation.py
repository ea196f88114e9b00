"""Accuracy of variants, in groups by test domain."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fgmix.analysis.arrays import Ablation
from fgmix.plots.looks import method_looks
from fgmix.plots.style import PAGE, panels, styled


@styled
def ablation(arrays: Ablation) -> Figure:
    """A group of bars for each test domain and their average; bars of the paper are hatched."""
    rows, columns = arrays.value.shape
    figure, (ax,) = panels(1, width=PAGE, height=2.6)
    width = 0.84 / rows
    looks = method_looks(arrays.algorithms.tolist())
    for r, (label, key, paper) in enumerate(zip(arrays.rows.tolist(), arrays.algorithms.tolist(), arrays.published)):
        ax.bar(
            np.arange(columns) + (r - (rows - 1) / 2) * width,
            np.nan_to_num(arrays.value[r]),
            width,
            yerr=np.nan_to_num(arrays.spread[r]),
            color=looks[key].colour,
            alpha=0.5 if paper else 1.0,
            hatch="////" if paper else None,
            edgecolor="white",
            linewidth=0.4,
            error_kw={"elinewidth": 0.6, "ecolor": "dimgrey"},
            label="_" if paper else label,  # "_": not in the legend
        )
    low, high = np.nanmin(arrays.value - np.nan_to_num(arrays.spread)), np.nanmax(arrays.value)
    ax.set_ylim(max(0.0, low - 0.25 * (high - low) - 1), high + 0.12 * (high - low) + 1)
    ax.set_xticks(range(columns), [str(column) for column in arrays.columns])
    ax.set_ylabel("Accuracy (%), truncated axis")
    ax.set_title(arrays.title)
    handles, _ = ax.get_legend_handles_labels()
    if arrays.published.any():
        handles.append(Patch(facecolor="grey", alpha=0.5, hatch="////", edgecolor="white", label="paper"))
    figure.legend(handles=handles, loc="outside lower center", ncols=9, columnspacing=1.0, handlelength=1.2)
    return figure
