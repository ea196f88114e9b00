"""Reliability diagram: accuracy against confidence on held-out domains."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from fgmix.plots.looks import GREY, method_look
from fgmix.plots.style import COLUMN, panels, styled


@styled
def reliability(bins: Sequence[tuple[float, float, float]]) -> Figure:
    """Accuracy over confidence, and below it the share of predictions of that confidence.

    Args:
        bins: mean confidence, accuracy and share of all predictions, each between 0 and 1.
    """
    confidence, accuracy, share = zip(*bins)
    figure, (above, below) = panels(1, 2, width=COLUMN, height=1.6, sharex=True, height_ratios=[3, 1])
    colour = method_look("fgmix").colour
    above.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle="--", label="calibrated")
    above.plot(confidence, accuracy, color=colour, marker="o", label="held-out domains")
    above.set(ylabel="Accuracy", xlim=(0, 1), ylim=(0, 1.02))
    above.legend(loc="upper left")
    below.bar(confidence, share, width=0.05, color=colour)
    below.set(xlabel="Confidence", ylabel="Share")
    return figure
