"""Shift: distances between domains, as two heat maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fgmix.figures.arrays import Bools, Floats, Texts
from fgmix.figures.description import Cells, Chart, Panel, list_names, map_matrix
from fgmix.results.rounding import accuracy_text, p_equation


@dataclass(frozen=True, eq=False)
class Shift:
    """Distances between domains."""

    title: str  # dataset and algorithm of the codes
    domains: Texts  # names (k,)
    is_test: Bools  # which of them were held out (k,)
    accuracy: Floats  # cross-validated accuracy of a classifier of two domains, balanced: 0.5 is chance (k, k)
    mmd: Floats  # squared maximum mean discrepancy of the two sets of codes (k, k)
    p: Floats  # its permutation p-value (k, k)
    overall: float  # balanced accuracy of a classifier of all domains


def describe_shift(arrays: Shift) -> Chart:
    """Describe the accuracy of a domain classifier for each pair (chance: 0.5), and MMD² with its p-value."""
    names = [f"{name} (test)" if test else str(name) for name, test in zip(arrays.domains, arrays.is_test)]
    x, y = list_names(names), list_names(names, flipped=True)
    accuracy = _map_pairs(names, arrays.accuracy, (0.5, 1.0), lambda i, j: f"{arrays.accuracy[i, j]:.2f}")
    distance = _map_pairs(
        names,
        arrays.mmd,
        (0.0, float(arrays.mmd.max())),
        lambda i, j: f"{arrays.mmd[i, j]:.3f}\n{p_equation(float(arrays.p[i, j]))}",
    )
    panels = [
        Panel("Accuracy of a domain classifier (chance: 0.5)", x, y, [accuracy]),
        Panel("MMD² and its permutation p-value", x, y, [distance]),
    ]
    overall = f"{accuracy_text(100 * arrays.overall)} % (chance: {100 / len(names):.0f} %)"
    caption = (
        f"{arrays.title}. Accuracy of a classifier of all {len(names)} domains: {overall}. Without a shift the "
        "pairwise accuracy is near 0.5. MMD² is above 0 by chance even without a shift, more so with few samples; its "
        "p-value takes that into account."
    )
    return Chart("Shift between domains", caption, panels)


def _map_pairs(
    names: Sequence[str], value: Floats, scale: tuple[float, float], text: Callable[[int, int], str]
) -> Cells:
    """Describe a heat map of pairs of domains; a domain with itself is left empty."""
    k = range(len(names))
    written = [["" if i == j else text(i, j) for j in k] for i in k]
    hovered = [[f"{names[i]} and {names[j]}: {text(i, j)}".replace("\n", ", ") for j in k] for i in k]
    return map_matrix(np.where(np.eye(len(names), dtype=bool), np.nan, value), hovered, *scale, written)
