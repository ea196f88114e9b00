"""Latent codes in the plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fgmix.analysis.arrays import Embedding
from fgmix.analysis.hulls import codes_note, name_places, source_regions
from fgmix.plots.looks import EXTRAPOLATED, GREY, INTERPOLATED, domain_looks
from fgmix.plots.style import label_row, note, panels, styled


@styled
def tsne(rows: Sequence[Embedding]) -> Figure:
    """A row for each test domain, a panel for each set of codes; colour and marker show the domain, and interpolated
    and extrapolated codes have markers of their own."""
    columns = len(rows[0].panels)
    figure, axes = panels(columns, len(rows), height=2.3 if len(rows) > 1 else 2.9)
    handles: dict[str, Any] = {}
    for r, arrays in enumerate(rows):
        own = axes[r * columns : (r + 1) * columns]
        for i, ax in enumerate(own):
            _panel(ax, arrays, i, several=len(rows) > 1)
        own[0].set_ylabel("t-SNE 2")
        label_row(own[0], f"Test domain {arrays.test_domains}")
        for ax in own:
            handles = {label: handle for handle, label in zip(*ax.get_legend_handles_labels())} | handles
    for ax in axes[-columns:]:
        ax.set_xlabel("t-SNE 1")
    order = sorted(handles, key=lambda label: label in (INTERPOLATED.name, EXTRAPOLATED.name))
    figure.legend(
        [handles[label] for label in order],
        order,
        loc="outside upper center",
        ncols=min(len(order), 7),
        markerscale=1.8,
        columnspacing=1.2,
    )
    note(figure, codes_note(rows))
    return figure


def _panel(ax: Axes, arrays: Embedding, i: int, *, several: bool) -> None:
    here = arrays.panel == i
    mixed = here & (arrays.domain < 0)
    for d, (name, look) in enumerate(domain_looks(arrays.domains.tolist()).items()):
        at = here & (arrays.domain == d)
        test = bool(arrays.is_test[d])
        ax.scatter(
            arrays.points[at, 0],
            arrays.points[at, 1],
            s=7 if test else 5,
            color=look.colour,
            marker=look.marker,
            alpha=0.75 if not mixed.any() or test else 0.3,
            linewidths=0,
            label=f"{name} (test)" if test and not several else name,  # else the row label names it
        )
    for kind, of_kind in ((INTERPOLATED, ~arrays.extrapolates), (EXTRAPOLATED, arrays.extrapolates)):
        if mixed.any() and (mixed & of_kind).any():
            x, y = arrays.points[mixed & of_kind].T
            size, width = (14, 1.0) if kind is EXTRAPOLATED else (9, 0.5)
            ax.scatter(x, y, s=size, color=kind.colour, marker=kind.marker, linewidths=width, label=kind.name)
    _regions(ax, arrays, i)
    share = arrays.extrapolated(i)
    title = str(arrays.panels[i])
    ax.set_title(title if np.isnan(share) else f"{title} ({100 * share:.1f} % extrapolated)")
    ax.set(xticks=[], yticks=[])
    ax.margins(0.1)  # room for names
    ax.spines[:].set_visible(True)


def _regions(ax: Axes, arrays: Embedding, i: int) -> None:
    """The outline and the name of each class."""
    for corners in source_regions(arrays, i).values():
        ax.plot(*corners.T, color=GREY, linewidth=0.7)
    for name, (x, y) in name_places(arrays, i).items():
        ax.text(x, y, name, fontsize=6.5, fontweight="bold", ha="center", va="center")
