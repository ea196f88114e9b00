"""Confusion matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fgmix.plots.style import COLUMN, panels, styled

MOST_NUMBERS = 12  # classes up to which every cell shows its number
MOST_NAMES = 40  # classes up to which axes show names
LONGEST = 18  # characters of a name


@styled
def confusion(classes: Sequence[str], matrices: Mapping[str, Sequence[Sequence[int]]]) -> Figure:
    """A panel for each matrix: rows are true classes, shaded by their share of the row.

    Args:
        classes: names of the classes.
        matrices: samples by true class (row) and predicted class (column), by title.
    """
    size = max(COLUMN, min(0.28 * len(classes), 2 * COLUMN))
    figure, axes = panels(len(matrices), width=size * len(matrices), height=size, sharey=True)
    for ax, (title, matrix) in zip(axes, matrices.items()):
        _panel(ax, classes, np.asarray(matrix))
        ax.set_title(_shown(title, 2 * LONGEST))
    axes[0].set_ylabel("True class")
    return figure


def _panel(ax: Axes, classes: Sequence[str], matrix: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> None:
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    ax.set_xlabel("Predicted class")
    if len(classes) <= MOST_NAMES:
        names = [_shown(name) for name in classes]
        ax.set_xticks(range(len(names)), names, rotation=90)
        ax.set_yticks(range(len(names)), names)
    if len(classes) <= MOST_NUMBERS:
        for (row, column), count in np.ndenumerate(matrix):
            colour = "white" if shares[row, column] > 0.6 else "black"
            ax.text(column, row, str(count), ha="center", va="center", color=colour, fontsize=6)


def _shown(name: str, longest: int = LONGEST) -> str:
    """A name for an axis: shortened, with $ escaped, which starts a formula in matplotlib."""
    short = name if len(name) <= longest else name[: longest - 1] + "…"
    return short.replace("$", r"\$")
