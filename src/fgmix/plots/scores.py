"""A_ω against the cosine."""

from __future__ import annotations

from matplotlib.figure import Figure

from fgmix.analysis.arrays import Scores
from fgmix.analysis.claims import rho_interval
from fgmix.plots.looks import method_look
from fgmix.plots.style import note, panels, styled

COLUMNS = 3
NOTE = "ρ: Spearman's correlation with its 95 % interval. A_ω rises with the cosine where the interval is above 0."


@styled
def scores(arrays: Scores) -> Figure:
    """A panel for each ordered pair of domains, Spearman's ρ in its title; all on the same axes."""
    count = len(arrays.pairs)
    columns = min(COLUMNS, count)
    rows = -(-count // columns)
    figure, axes = panels(columns, rows, height=1.9, sharex=True, sharey=True)
    for i, ax in enumerate(axes[:count]):
        ax.scatter(arrays.cosine[i], arrays.score[i], s=6, alpha=0.6, color=method_look("fgmix").colour, linewidths=0)
        low, high = rho_interval(float(arrays.rho[i]), arrays.score.shape[1])
        ax.set_title(f"{arrays.pairs[i]}\nρ = {arrays.rho[i]:.2f} [{low:.2f}, {high:.2f}]")
        if i + columns >= count:
            ax.set_xlabel(f"Cosine of {arrays.inputs}")
            ax.tick_params(labelbottom=True)
        if i % columns == 0:
            ax.set_ylabel(r"$A_\omega$")
    for ax in axes[count:]:
        ax.set_axis_off()
    figure.suptitle(f"Source domains of test domain {arrays.test_domains}", fontsize=9)
    note(figure, NOTE)
    return figure
