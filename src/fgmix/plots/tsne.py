"""Latent codes in the plane."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fgmix.analysis.arrays import Embedding
from fgmix.plots.looks import domain_looks
from fgmix.plots.style import panels, styled

MIXED = "#000000"


@styled
def tsne(arrays: Embedding) -> Figure:
    """One panel per set of codes; colour and marker show the domain, mixed codes are black crosses."""
    figure, axes = panels(len(arrays.panels), height=2.75)
    for i, ax in enumerate(axes):
        _panel(ax, arrays, i)
    handles, labels = axes[0].get_legend_handles_labels()  # where domains are not faded behind mixed codes
    mixed = [each for each in zip(*axes[-1].get_legend_handles_labels()) if each[1] not in labels]
    handles, labels = handles + [handle for handle, _ in mixed], labels + [label for _, label in mixed]
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), markerscale=1.8, columnspacing=1.2)
    return figure


def _panel(ax: Axes, arrays: Embedding, i: int) -> None:
    here = arrays.panel == i
    mixed = here & (arrays.domain < 0)
    looks = domain_looks(arrays.domains.tolist())
    for d, (name, look) in enumerate(looks.items()):
        at = here & (arrays.domain == d)
        test = bool(arrays.is_test[d])
        ax.scatter(
            arrays.points[at, 0],
            arrays.points[at, 1],
            s=7 if test else 5,
            color=look.colour,
            marker=look.marker,
            alpha=0.75 if not mixed.any() or test else 0.35,
            linewidths=0,
            label=f"{name} (test)" if test else name,
        )
    if mixed.any():
        ax.scatter(
            arrays.points[mixed, 0],
            arrays.points[mixed, 1],
            s=8,
            color=MIXED,
            marker="x",
            linewidths=0.5,
            label="mixed",
        )
    share = arrays.extrapolated[i]
    ax.set_title(str(arrays.panels[i]) + ("" if np.isnan(share) else f"\n{100 * share:.1f} % extrapolated"))
    ax.set(xticks=[], yticks=[], xlabel="t-SNE 1", ylabel="t-SNE 2" if i == 0 else "")
    ax.spines[:].set_visible(True)
