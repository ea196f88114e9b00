"""Reliability: accuracy against confidence on held-out domains, for the card of a model."""

from __future__ import annotations

from collections.abc import Sequence

from fgmix.figures.description import Axis, Chart, Line, Mark, Panel, Points
from fgmix.figures.looks import GREY, choose_look


def describe_reliability(bins: Sequence[tuple[float, float, float]]) -> Chart:
    """Describe accuracy over confidence, and beside it the share of predictions of that confidence.

    Args:
        bins: mean confidence, accuracy and share of all predictions, each between 0 and 1.
    """
    confidence, accuracy, share = zip(*bins)
    colour = choose_look("fgmix").colour
    x = Axis("Confidence", low=0.0, high=1.0)
    texts = [f"confidence {c:.2f}: accuracy {a:.2f}" for c, a, _ in bins]
    curve: list[Mark] = [
        Line("calibrated", [0, 1], [0, 1], GREY, dashed=True, width=1.3),
        Line("held-out domains", confidence, accuracy, colour),
        Points("held-out domains", confidence, accuracy, colour, "o", texts),
    ]
    bars = [Line("", [c, c], [0, s], colour, width=12, text=f"confidence {c:.2f}: share {s:.2f}") for c, _, s in bins]
    panels = [
        Panel("", x, Axis("Accuracy", low=0.0, high=1.02), curve),
        Panel("", x, Axis("Share of predictions", low=0.0, high=1.05 * max(share)), bars),
    ]
    return Chart("", "", panels, columns=2)
