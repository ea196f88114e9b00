"""Squared loss difference around a minimum, by distance."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from fgmix.analysis.arrays import Flatness
from fgmix.plots.looks import GREY, method_looks
from fgmix.plots.style import panels, styled

DISTANCE = {"classifier": "Distance γ", "network": "Distance γ (% of each filter's norm)"}


@styled
def flatness(arrays: Flatness) -> Figure:
    """A panel for each method with its directions in grey and their mean in colour, then all means together."""
    figure, axes = panels(len(arrays.methods) + 1, height=2.1)
    power = _power(float(arrays.gaps.max()))
    scaled = arrays.gaps / 10.0**power
    means = scaled.mean(1)  # (m, g)
    looks = method_looks(arrays.algorithms.tolist())
    look_of = [looks[key] for key in arrays.algorithms.tolist()]
    for ax, method, look, data, gaps, mean in zip(axes, arrays.methods, look_of, arrays.data, scaled, means):
        ax.plot(arrays.gammas, gaps.T, color=GREY, linewidth=0.4, alpha=0.6)
        ax.plot(arrays.gammas, mean, color=look.colour, linewidth=1.8)
        ax.set_title(f"{method}\n({data})")
    top = 1.05 * float(scaled.max()) or 1.0
    for ax in axes[:-1]:
        ax.set_ylim(-0.02 * top, top)  # one scale for all methods
    together = axes[-1]
    for method, look, mean in zip(map(str, arrays.methods), look_of, means):
        together.plot(arrays.gammas, mean, color=look.colour, marker=look.marker, label=method)
    together.set_title(f"Mean of {arrays.gaps.shape[1]}\ndirections")
    together.legend(loc="upper left", handlelength=1.4)
    axes[0].set_ylabel("(L(φ*) − L(φ′))²" + (rf"  ($\times 10^{{{power}}}$)" if power else ""))
    figure.supxlabel(DISTANCE[arrays.scope], fontsize=8)
    figure.suptitle(f"{arrays.scope.capitalize()}, test domain {arrays.test_domains}", fontsize=9)
    return figure


def _power(largest: float) -> int:
    """The power of ten to factor out of the numbers: none where they are short without it."""
    power = math.floor(math.log10(largest)) if largest > 0 else 0
    return power if abs(power) > 2 else 0
