"""Figures of the card of a model: confusion matrices, and accuracy against confidence on held-out domains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fgmix.figures.description import Axis, Chart, Line, Mark, Panel, Points, list_names, map_matrix
from fgmix.figures.looks import GREY, choose_look

MOST_NUMBERS = 12  # classes up to which every cell shows its number
MOST_NAMES = 40  # classes up to which axes show names
LONGEST = 18  # characters of a name


def describe_confusion(classes: Sequence[str], matrices: Mapping[str, Sequence[Sequence[int]]]) -> Chart:
    """Describe a panel for each matrix: rows are true classes, shaded by their share of the row."""
    names = [_shorten(name, LONGEST) for name in classes]
    axes = [list_names(names, "Predicted class"), list_names(names, "True class", flipped=True)]
    x, y = axes if len(names) <= MOST_NAMES else [replace(axis, ticks=None) for axis in axes]
    panels = []
    for title, counts in matrices.items():
        matrix = np.asarray(counts)
        shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
        text = [
            [f"{count} of {true} predicted as {predicted}" for predicted, count in zip(classes, row)]
            for true, row in zip(classes, matrix)
        ]
        written = [[str(count) for count in row] for row in matrix] if len(classes) <= MOST_NUMBERS else []
        cells = map_matrix(shares, text, 0.0, 1.0, written, colours="Blues")
        panels.append(Panel(_shorten(title, 2 * LONGEST), x, y, [cells]))
    return Chart("", "", panels)


def _shorten(name: str, longest: int) -> str:
    return name if len(name) <= longest else name[: longest - 1] + "…"


def describe_reliability(bins: Sequence[tuple[float, float, float]]) -> Chart:
    """Describe accuracy over confidence, and beside it the share of predictions of that confidence.

    Bins are mean confidence, accuracy and share of all predictions, each between 0 and 1.
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
