"""Distances between domains, as two heat maps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fgmix.analysis.arrays import Floats, Shift
from fgmix.plots.style import PAGE, panels, styled
from fgmix.results.rounding import accuracy_text, p_equation

Label = Callable[[int, int], str]  # of a cell


@styled
def shift(arrays: Shift) -> Figure:
    """Accuracy of a domain classifier for each pair (chance: 0.5), and MMD² with its p-value."""
    k = len(arrays.domains)
    figure, (left, right) = panels(2, width=PAGE, height=1.6 + 0.34 * k)
    _heat(figure, left, arrays, arrays.accuracy, 0.5, 1.0, lambda i, j: f"{arrays.accuracy[i, j]:.2f}")
    left.set_title("Accuracy of a domain classifier (chance: 0.5)")
    _heat(
        figure,
        right,
        arrays,
        arrays.mmd,
        0.0,
        max(float(arrays.mmd.max()), 1e-12),
        lambda i, j: f"{arrays.mmd[i, j]:.3f}\n{p_equation(arrays.p[i, j])}",
    )
    right.set_title("MMD² and its permutation p-value")
    overall = f"{accuracy_text(100 * arrays.overall)} % (chance: {100 / k:.0f} %)"
    figure.suptitle(f"{arrays.title}; accuracy over all {k} domains: {overall}", fontsize=9)
    return figure


def _heat(figure: Figure, ax: Axes, arrays: Shift, values: Floats, low: float, high: float, text: Label) -> None:
    k = len(values)
    shown = np.ma.masked_where(np.eye(k, dtype=bool), values)
    image = ax.imshow(shown, cmap="cividis", vmin=low, vmax=high, aspect="auto")
    for i in range(k):
        for j in range(k):
            if i != j:
                colour = "white" if values[i, j] < (low + high) / 2 else "black"
                ax.text(j, i, text(i, j), ha="center", va="center", color=colour, fontsize=6)
    names = [f"{name} (test)" if test else str(name) for name, test in zip(arrays.domains, arrays.is_test)]
    ax.set_xticks(range(k), names, rotation=30, ha="right")
    ax.set_yticks(range(k), names)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    figure.colorbar(image, ax=ax)
