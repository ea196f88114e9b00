"""Gradients of three samples, the effect of λ on ã, and the toy example."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fgmix.analysis.arrays import Floats, WeightEffect, in_words
from fgmix.plots.looks import GREY, domain_looks, method_looks
from fgmix.plots.style import panels, styled


@styled
def weights(arrays: WeightEffect) -> Figure:
    """Losses of three samples and their gradients, a panel for each weight vector, then the toy example."""
    figure, axes = panels(2, -(-(len(arrays.a) + 2) // 2), height=2.7)
    _surfaces(axes[0], arrays.surfaces)
    effects = axes[1 : 1 + len(arrays.a)]
    for ax, a, a_tilde in zip(effects, arrays.a, arrays.a_tilde):
        _effect(ax, arrays.lam, a, a_tilde)
    low, high = min(ax.get_ylim()[0] for ax in effects), max(ax.get_ylim()[1] for ax in effects)
    for ax in effects:
        ax.set_ylim(low, high)
        ax.axhspan(low, 0, color=GREY, alpha=0.15, linewidth=0)
        ax.text(0.98, 0.02, "extrapolation", ha="right", va="bottom", color="dimgrey", transform=ax.transAxes)
    _toy(axes[1 + len(arrays.a)], arrays)
    for letter, ax in zip("abcdefgh", axes):
        ax.set_title(f"({letter}) {ax.get_title()}")
    return figure


def _surfaces(ax: Axes, minima: Floats) -> None:
    """Level lines of the loss of each sample, and its steepest descent from φ = 0."""
    x, y = np.meshgrid(np.linspace(-3.2, 3.2, 161), np.linspace(-1.2, 3.2, 111))
    looks = domain_looks([str(i) for i in range(len(minima))])
    for i, (look, (a, b)) in enumerate(zip(looks.values(), minima)):
        loss = ((x - a) ** 2 + (y - b) ** 2) / 2
        ax.contour(x, y, loss, levels=[0.1, 0.3, 0.6, 1.0], colors=look.colour, linewidths=0.6, alpha=0.8)
        _arrow(ax, 0.8 * minima[i], look.colour)
        ax.text(a, b, f"$z_{i + 1}$", color=look.colour, ha="center", va="center", fontsize=8)
        aside = 0.28 * np.array([-b, a]) / np.hypot(a, b)  # to the left of the arrow
        x_g, y_g = 0.55 * minima[i] + aside
        ax.text(x_g, y_g, f"$-g_{i + 1}$", color=look.colour, ha="center", va="center", fontsize=7)
    ax.plot(0, 0, "o", color="black", markersize=3)
    ax.text(0, -0.12, "φ", ha="center", va="top")
    count = in_words(len(minima))
    ax.spines[:].set_visible(False)
    ax.set(xticks=[], yticks=[], aspect="equal", title=f"Losses of {count} samples and their gradients")


def _effect(ax: Axes, lam: Floats, a: Floats, a_tilde: Floats) -> None:
    looks = domain_looks([str(i) for i in range(len(a))])
    for i, look in enumerate(looks.values()):
        ax.plot(lam, a_tilde[:, i], color=look.colour, label=rf"$\tilde{{a}}_{i + 1}$ ($a_{i + 1}$ = {a[i]:g})")
    ax.axhline(0, color=GREY, linewidth=0.6)
    ax.axvline(1, color=GREY, linewidth=0.6, linestyle=":")
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.set_xlabel("λ")
    ax.set_ylabel("ã")
    ax.set_title(f"a = ({', '.join(f'{value:g}' for value in a)})")
    ax.legend(loc="upper center", handlelength=1.2)


def _toy(ax: Axes, arrays: WeightEffect) -> None:
    for i, (g, a) in enumerate(zip(arrays.gradients, arrays.weights)):
        _arrow(ax, g, GREY)
        ax.text(
            1.08 * g[0],
            1.08 * g[1],
            f"$g_{i + 1}$\na = {a:.2f}",
            color="dimgrey",
            ha="left" if g[0] > 0 else "right",
            va="bottom" if g[1] > 0 else "top",
            fontsize=7,
        )
    looks = method_looks(arrays.update_algorithms.tolist())
    colours = [looks[key].colour for key in arrays.update_algorithms.tolist()]
    for name, colour, update in zip(arrays.update_names, colours, arrays.updates):
        ax.plot([], [], color=colour, label=f"{name} ({update[0]:.2f}, {update[1]:.2f})")
    for place in (arrays.updates**2).sum(1).argsort()[::-1]:  # the shortest arrow on top
        _arrow(ax, arrays.updates[place], colours[place])
    ax.axhline(0, color=GREY, linewidth=0.4)
    ax.axvline(0, color=GREY, linewidth=0.4)
    count = in_words(len(arrays.gradients))
    ax.set(xlim=(-2.6, 3.6), ylim=(-2.0, 2.2), aspect="equal", title=f"Toy example: {count} gradients, three updates")
    ax.legend(loc="upper right", handlelength=1.2)


def _arrow(ax: Axes, to: Floats, colour: str) -> None:
    ax.annotate(
        "",
        xy=(to[0], to[1]),
        xytext=(0, 0),
        arrowprops={"arrowstyle": "-|>", "color": colour, "shrinkA": 0, "shrinkB": 0},
    )
