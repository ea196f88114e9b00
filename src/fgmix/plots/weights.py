"""Effect of λ on ã, and the toy example's gradients."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fgmix.analysis.arrays import Floats, WeightEffect
from fgmix.plots.looks import GREY, domain_looks, method_looks
from fgmix.plots.style import panels, styled


@styled
def weights(arrays: WeightEffect) -> Figure:
    """A panel for each weight vector, then the toy example."""
    figure, axes = panels(len(arrays.a) + 1, height=2.4)
    for ax, a, a_tilde in zip(axes, arrays.a, arrays.a_tilde):
        _effect(ax, arrays.lam, a, a_tilde)
    low, high = min(ax.get_ylim()[0] for ax in axes[:-1]), max(ax.get_ylim()[1] for ax in axes[:-1])
    for ax in axes[:-1]:
        ax.set_ylim(low, high)
        ax.axhspan(low, 0, color=GREY, alpha=0.15, linewidth=0)
        ax.text(0.98, 0.02, "extrapolation", ha="right", va="bottom", color="dimgrey", transform=ax.transAxes)
    _toy(axes[-1], arrays)
    return figure


def _effect(ax: Axes, lam: Floats, a: Floats, a_tilde: Floats) -> None:
    looks = domain_looks([str(i) for i in range(len(a))])
    for i, look in enumerate(looks.values()):
        ax.plot(lam, a_tilde[:, i], color=look.colour, label=rf"$\tilde{{a}}_{i + 1}$ ($a_{i + 1}$ = {a[i]:g})")
    ax.axhline(0, color=GREY, linewidth=0.6)
    ax.axvline(1, color=GREY, linewidth=0.6, linestyle=":")
    ax.set_xlabel("λ")
    ax.set_ylabel("ã")
    ax.set_title(f"a = ({', '.join(f'{value:g}' for value in a)})")
    ax.legend(loc="upper center", handlelength=1.2)


def _toy(ax: Axes, arrays: WeightEffect) -> None:
    for i, (g, a) in enumerate(zip(arrays.gradients, arrays.weights)):
        _arrow(ax, g, GREY, f"$g_{i + 1}$, a = {a:.2f}", 1.1, "dimgrey")
    looks = method_looks(arrays.update_algorithms.tolist())
    colours = [looks[key].colour for key in arrays.update_algorithms.tolist()]
    for name, colour, update in zip(arrays.update_names, colours, arrays.updates):
        ax.plot([], [], color=colour, label=f"{name} ({update[0]:.2f}, {update[1]:.2f})")
    for place in (arrays.updates**2).sum(1).argsort()[::-1]:  # the shortest arrow on top
        _arrow(ax, arrays.updates[place], colours[place])
    ax.axhline(0, color=GREY, linewidth=0.4)
    ax.axvline(0, color=GREY, linewidth=0.4)
    ax.set(xlim=(-2.1, 1.9), ylim=(-1.5, 2.8), aspect="equal", title="Toy example: gradients and updates")
    ax.legend(loc="upper right", handlelength=1.2)


def _arrow(ax: Axes, to: Floats, colour: str, text: str = "", reach: float = 1.0, text_colour: str = "black") -> None:
    ax.annotate(
        "",
        xy=(to[0], to[1]),
        xytext=(0, 0),
        arrowprops={"arrowstyle": "-|>", "color": colour, "shrinkA": 0, "shrinkB": 0},
    )
    if text:
        side = "left" if to[0] > 0 else "center"
        ax.text(
            reach * to[0],
            reach * to[1],
            text,
            color=text_colour,
            ha=side,
            va="bottom" if to[1] > 0 else "top",
            fontsize=7,
        )
