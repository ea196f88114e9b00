"""Squared loss difference around a minimum, by distance."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fgmix.analysis.arrays import Flatness
from fgmix.analysis.claims import area_ratios
from fgmix.analysis.limits import flatness_note, flatness_top, standard_error
from fgmix.plots.looks import GREY, method_looks
from fgmix.plots.style import label_row, note, panels, styled

DISTANCE = {"classifier": "Distance γ", "network": "γ (% of filter norm)"}


@styled
def flatness(rows: Sequence[Flatness]) -> Figure:
    """A row for each test domain: a panel for each method with its directions in grey and their mean in colour, then
    all means together."""
    columns = max(len(arrays.methods) for arrays in rows) + 1
    figure, axes = panels(columns, len(rows), height=1.85 if len(rows) > 1 else 2.3)
    for r, arrays in enumerate(rows):
        _row(axes[r * columns : (r + 1) * columns], arrays, first=r == 0, last=r == len(rows) - 1)
        label_row(axes[r * columns], f"Test domain {arrays.test_domains}")
    note(figure, flatness_note(rows))
    return figure


def _row(axes: Sequence[Axes], arrays: Flatness, *, first: bool, last: bool) -> None:
    top = flatness_top(arrays)
    power = _power(top)
    scaled = arrays.gaps / 10.0**power
    looks = method_looks(arrays.algorithms.tolist())
    look_of = [looks[key] for key in arrays.algorithms.tolist()]
    together = axes[len(arrays.methods)]
    for ax, method, look, data, gaps in zip(axes, map(str, arrays.methods), look_of, arrays.data, scaled):
        mean, error = gaps.mean(0), standard_error(gaps)
        ax.plot(arrays.gammas, gaps.T, color=GREY, linewidth=0.4, alpha=0.6)
        ax.plot(arrays.gammas, mean, color=look.colour, linewidth=1.8)
        together.fill_between(
            arrays.gammas, np.maximum(mean - error, 0), mean + error, color=look.colour, alpha=0.15, linewidth=0
        )
        together.plot(arrays.gammas, mean, color=look.colour, marker=look.marker, label=method)
        if first:
            ax.set_title(f"{method}\n({data})")
    for ax in axes[: len(arrays.methods) + 1]:
        ax.set_ylim(-0.02 * top / 10.0**power, top / 10.0**power)
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        ax.tick_params(labelleft=ax is axes[0])
        if last:
            ax.set_xlabel(DISTANCE[arrays.scope])
    for ax in axes[len(arrays.methods) + 1 :]:
        ax.set_axis_off()
    if first:
        others = f"(area ÷ {arrays.methods[0]}'s, 95 % interval)" if len(arrays.methods) > 1 else ""
        together.set_title(f"All means\n{others}")
        together.legend(loc="upper left", handlelength=1.4)
    for place, (look, ratio) in enumerate(zip(look_of[1:], area_ratios(arrays))):
        text = f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
        below = 0.94 - 0.1 * place - (0.13 * len(look_of) if first else 0)  # the legend
        together.text(0.04, below, text, color=look.colour, fontsize=6.5, va="top", transform=together.transAxes)
    axes[0].set_ylabel("(L(φ*) − L(φ′))²" + (rf"  ($\times 10^{{{power}}}$)" if power else ""))


def _power(largest: float) -> int:
    """The power of ten to factor out of the tick labels; 0 if they are short without it."""
    power = math.floor(math.log10(largest)) if largest > 0 else 0
    return power if abs(power) > 2 else 0
