"""Loss and accuracy on a plane of weights, with the paths of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from fgmix.analysis.arrays import Floats, Surface
from fgmix.analysis.claims import optimum
from fgmix.plots.looks import ACCURACY_COLOURS, LOSS_COLOURS, OPTIMUM, method_looks
from fgmix.plots.style import label_row, note, panels, styled

LEVELS = 14
ANCHOR_MARKERS = ("o", "s", "D")
NOTE = (
    "Only the three models lie on the plane; other points of the paths are projections. Losses of a row share their "
    "levels; above the highest, far from every path, they are one colour. Star: highest test accuracy, by a quadratic "
    "fit around the highest point of the grid."
)


@styled
def surface(rows: Sequence[Surface]) -> Figure:
    """A row for each test domain: train losses on one scale, then the test accuracy, with the same ranges."""
    columns = len(rows[0].panels)
    figure, axes = panels(columns, len(rows), height=2.1 if len(rows) > 1 else 2.9)
    handles: dict[str, Any] = {}
    for r, arrays in enumerate(rows):
        own = axes[r * columns : (r + 1) * columns]
        _row(figure, own, arrays, first=r == 0, last=r == len(rows) - 1)
        label_row(own[0], f"Test domain {arrays.test_domains}")
        for ax in own:
            handles |= {label: handle for handle, label in zip(*ax.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4)
    note(figure, NOTE)
    return figure


def _row(figure: Figure, axes: Sequence[Axes], arrays: Surface, *, first: bool, last: bool) -> None:
    losses, accuracy = arrays.values[:-1], arrays.values[-1]
    levels = loss_levels(losses)
    for ax, loss in zip(axes, losses):
        filled = ax.contourf(arrays.u, arrays.v, loss, levels=levels, cmap=LOSS_COLOURS, extend="both")
    figure.colorbar(filled, ax=axes[len(losses) - 1], format="%.2g", label="Train loss", ticks=levels[::3])
    filled = axes[-1].contourf(arrays.u, arrays.v, accuracy, levels=LEVELS, cmap=ACCURACY_COLOURS)
    figure.colorbar(filled, ax=axes[-1], label="Test accuracy (%)")
    for i, ax in enumerate(axes):
        _paths(ax, arrays, i)
        if first:
            ax.set_title(str(arrays.panels[i]).removesuffix(" (%)"))
        if last:
            ax.set_xlabel("û")
        ax.tick_params(labelleft=i == 0)
    axes[0].set_ylabel("v̂")
    x, y = optimum(arrays)
    star: dict[str, Any] = {
        "marker": "*",
        "s": 60,
        "color": OPTIMUM,
        "edgecolor": "black",
        "linewidth": 0.7,
        "zorder": 6,
    }
    axes[-1].scatter(x, y, **star, clip_on=False, label="Highest test accuracy")


def loss_levels(losses: Floats) -> Floats:
    """Levels for both losses: finer towards the minimum, up to the upper quartile of the grid."""
    low, high = float(np.nanmin(losses)), float(np.nanquantile(losses, 0.75))
    if high <= low:
        high = low + 1e-6  # a flat surface still has a scale
    return low + (high - low) * np.linspace(0, 1, LEVELS) ** 1.5


def _paths(ax: Axes, arrays: Surface, panel: int) -> None:
    looks = method_looks(arrays.path_algorithms.tolist())
    for p, (label, key) in enumerate(zip(arrays.paths.tolist(), arrays.path_algorithms.tolist())):
        if arrays.path_panels[p, panel]:
            averaged = bool(arrays.path_averaged[p])
            at = arrays.path_points[arrays.path == p]
            ax.plot(
                *at.T,
                color=looks[key].colour,
                linestyle="-" if averaged else ":",
                marker=looks[key].marker,
                markersize=2.6 if averaged else 1.8,
                linewidth=1.0,
                path_effects=[withStroke(linewidth=2.2, foreground="white")],
                label=f"{label} path",
            )
    for label, marker, (x, y) in zip(map(str, arrays.anchors), ANCHOR_MARKERS, arrays.anchor_points):
        ax.scatter(x, y, marker=marker, s=34, color="white", edgecolor="black", linewidth=0.9, zorder=5, label=label)
