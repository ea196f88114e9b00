"""Loss and accuracy on a plane of weights, with the paths of training."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from fgmix.analysis.arrays import Floats, Surface
from fgmix.plots.looks import method_looks
from fgmix.plots.style import panels, styled

LEVELS = 14
ANCHOR_MARKERS = ("o", "s", "D")


@styled
def surface(arrays: Surface) -> Figure:
    """Train losses on one scale, then the test accuracy; the same ranges everywhere."""
    figure, axes = panels(len(arrays.panels), height=2.9)
    losses, accuracy = arrays.values[:-1], arrays.values[-1]
    levels = loss_levels(losses)
    for i, ax in enumerate(axes[:-1]):
        # Above the last level, far from every path, the loss is one colour: its height there means nothing.
        filled = ax.contourf(arrays.u, arrays.v, losses[i], levels=levels, cmap="cividis", extend="both")
    figure.colorbar(filled, ax=axes[:-1], format="%.3g", location="bottom", label="Train loss", aspect=40)
    filled = axes[-1].contourf(arrays.u, arrays.v, accuracy, levels=LEVELS, cmap="viridis")
    figure.colorbar(filled, ax=axes[-1], location="bottom", label="Test accuracy (%)", aspect=18)
    for i, ax in enumerate(axes):
        _paths(ax, arrays, i)
        ax.set_title(str(arrays.panels[i]))
        ax.set_xlabel("û")
    axes[0].set_ylabel("v̂")
    handles: dict[str, Any] = {}
    for ax in axes:
        handles |= {label: handle for handle, label in zip(*ax.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
    figure.suptitle(f"Test domain {arrays.test_domains}", fontsize=9)
    return figure


def loss_levels(losses: Floats) -> Floats:
    """Levels that both losses share: finer towards the minimum, up to where three quarters of the grid lie."""
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
