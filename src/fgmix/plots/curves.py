"""A run over its steps: accuracy and loss of every domain, the method's own metrics."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fgmix.analysis.arrays import Curves, Floats
from fgmix.plots.style import domain_looks, line_style, method_look, panels, styled

LOSSES = ("loss", "risk", "flat", "adv", "disc")
# Metrics that are no loss: each gets a panel and says what it is.
NAMED = {"lam": "λ", "extrapolated": "Extrapolated share", "entropy": "Entropy of the weights", "mixed": "Mixed codes"}
SHOWN = ("lam", "extrapolated")


@styled
def curves(arrays: Curves) -> Figure:
    """Accuracy, loss, training losses, and for mixing methods λ and the extrapolated share."""
    metrics = dict(zip(map(str, arrays.metrics), arrays.metric_values))
    own = [name for name in SHOWN if name in metrics]
    losses = {name: values for name, values in metrics.items() if name not in NAMED}
    columns = 3
    rows = -(-(3 + len(own)) // columns)
    figure, axes = panels(columns, rows, height=2.1)
    figure.suptitle(arrays.title, fontsize=9)
    _by_domain(axes[0], arrays, arrays.accuracy, "Holdout accuracy (%)")
    _by_domain(axes[1], arrays, arrays.loss, "Holdout loss")
    _training(axes[2], arrays, losses)
    for ax, name in zip(axes[3:], own):
        ax.plot(arrays.steps, metrics[name], color=method_look("FGMix").colour)
        _labelled(ax, NAMED[name])
    if own and "extrapolated" in own:
        axes[3 + own.index("extrapolated")].set_ylim(-0.02, 1.02)
    used = 3 + len(own)
    for ax in axes[used:]:
        ax.set_axis_off()
    handles, labels = axes[0].get_legend_handles_labels()
    if used < len(axes):
        axes[used].legend(handles, labels, loc="center left")
    else:
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def _by_domain(ax: Axes, arrays: Curves, values: Floats, name: str) -> None:
    looks = domain_looks(arrays.domains.tolist())
    for d, (domain, test) in enumerate(zip(looks, arrays.is_test)):
        for m, model in enumerate(map(str, arrays.models)):
            label = f"{domain}{' (test)' if test else ''}{'' if model == 'raw' else f', {model.upper()}'}"
            ax.plot(
                arrays.steps,
                values[m, d],
                color=looks[domain].colour,
                linestyle=line_style(model),
                linewidth=1.8 if test else 1.0,
                label=label,
            )
    _labelled(ax, name)


def _training(ax: Axes, arrays: Curves, losses: dict[str, Floats]) -> None:
    styles = ("-", "--", ":", "-.")
    ordered = sorted(losses, key=lambda name: (LOSSES.index(name) if name in LOSSES else len(LOSSES), name))
    for i, name in enumerate(ordered):
        ax.plot(arrays.steps, losses[name], color="black", linestyle=styles[i % len(styles)], label=name)
    _labelled(ax, "Training terms")
    ax.legend(handlelength=2.2)


def _labelled(ax: Axes, name: str) -> None:
    ax.set_xlabel("Step")
    ax.set_ylabel(name)
