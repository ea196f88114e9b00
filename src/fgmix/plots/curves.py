"""A run over its steps: accuracy and loss of every domain, and the metrics of the method."""

from __future__ import annotations

from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fgmix.analysis.arrays import Curves, Floats
from fgmix.analysis.metrics import is_loss
from fgmix.plots.looks import MARKERS, domain_looks, line_style, method_look
from fgmix.plots.style import panels, styled

COLUMNS = 3
LINES = ("-", "--", ":", "-.")
TERMS = ("#000000", "#882255", "#117733", "#332288", "#999933")  # none is a domain's colour


@styled
def curves(arrays: Curves) -> Figure:
    """Accuracy, loss and training terms, then a panel for each metric of another scale, such as λ.

    Curves of the metrics of mixing start when mixing does.
    """
    metrics = dict(zip(map(str, arrays.metrics), arrays.metric_values))
    terms = sorted(filter(is_loss, metrics), key=lambda name: (name != "Training loss", name))
    apart = [name for name in metrics if not is_loss(name) and np.isfinite(metrics[name]).any()]
    names = ["Holdout accuracy (%)", "Holdout loss", "Training terms", *apart]
    figure, axes = panels(COLUMNS, -(-len(names) // COLUMNS), height=2.1, sharex=True)
    figure.suptitle(arrays.title, fontsize=9)
    _by_domain(axes[0], arrays, arrays.accuracy)
    _by_domain(axes[1], arrays, arrays.loss)
    for name, colour, marker, line in zip(terms, cycle(TERMS), cycle(MARKERS), cycle(LINES)):
        axes[2].plot(arrays.steps, metrics[name], color=colour, marker=marker, linestyle=line, label=name)
    low, high = axes[2].get_ylim()
    axes[2].set_ylim(low, high + 0.13 * (len(terms) + 0.5) * (high - low))  # room for the legend
    axes[2].legend(loc="upper right", handlelength=2.2)
    for ax, name in zip(axes[3:], apart):
        ax.plot(arrays.steps, metrics[name], color=method_look("fgmix").colour, marker="o")
    for i, (ax, text) in enumerate(zip(axes, names)):
        ax.set_ylabel(text)
        if i + COLUMNS >= len(names):
            ax.set_xlabel("Step")
            ax.tick_params(labelbottom=True)
    for ax in axes[len(names) :]:
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
