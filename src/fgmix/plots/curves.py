"""A run over its steps: accuracy and loss of every domain, and the metrics of the method."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fgmix.analysis.arrays import Curves, Floats
from fgmix.plots.looks import domain_looks, line_style, method_look
from fgmix.plots.style import panels, styled

# Metrics with a panel of their own, because their scale is not that of a loss.
APART = {"flat": "L_flat", "lam": "λ", "extrapolated": "Extrapolated share"}
HIDDEN = ("entropy", "mixed")
COLUMNS = 3
LINES = ("-", "--", ":", "-.")


@styled
def curves(arrays: Curves) -> Figure:
    """Accuracy, loss and training terms; for methods that mix also L_flat, λ and the extrapolated share."""
    metrics = dict(zip(map(str, arrays.metrics), arrays.metric_values))
    apart = [name for name in APART if name in metrics]
    terms = {name: values for name, values in metrics.items() if name not in (*APART, *HIDDEN)}
    used = 3 + len(apart)
    figure, axes = panels(COLUMNS, -(-used // COLUMNS), height=2.1)
    figure.suptitle(arrays.title, fontsize=9)
    _by_domain(axes[0], arrays, arrays.accuracy)
    _by_domain(axes[1], arrays, arrays.loss)
    for i, name in enumerate(sorted(terms, key=lambda name: (name != "loss", name))):
        axes[2].plot(arrays.steps, terms[name], color="black", linestyle=LINES[i % len(LINES)], label=name)
    axes[2].legend(handlelength=2.2)
    for ax, name in zip(axes[3:], apart):
        ax.plot(arrays.steps, metrics[name], color=method_look("fgmix").colour)
    names = ("Holdout accuracy (%)", "Holdout loss", "Training terms", *(APART[name] for name in apart))
    for ax, text in zip(axes, names):
        ax.set(xlabel="Step", ylabel=text)
    for ax in axes[used:]:
        ax.set_axis_off()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def _by_domain(ax: Axes, arrays: Curves, values: Floats) -> None:
    looks = domain_looks(arrays.domains.tolist())
    for d, (domain, test) in enumerate(zip(looks, arrays.is_test)):
        for m, model in enumerate(map(str, arrays.models)):
            averaged = "" if model == "raw" else f", {model.upper()}"
            ax.plot(
                arrays.steps,
                values[m, d],
                color=looks[domain].colour,
                linestyle=line_style(model),
                linewidth=1.8 if test else 1.0,
                label=f"{domain}{' (test)' if test else ''}{averaged}",
            )
