"""Distances between domains."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fgmix.analysis import arrays as kinds
from fgmix.analysis.arrays import Floats
from fgmix.report.charts import Cells, Chart, Panel
from fgmix.report.figures.shared import grid, names_axis
from fgmix.results.rounding import accuracy_text, p_equation


def shift(id: str, arrays: kinds.Shift, command: str) -> Chart:
    """Two heat maps of pairs of domains."""
    names = [f"{name} (test)" if test else str(name) for name, test in zip(arrays.domains, arrays.is_test)]
    x, y = names_axis(names), names_axis(names, flipped=True)
    accuracy = _pairwise(names, arrays.accuracy, (0.5, 1.0), lambda i, j: f"{arrays.accuracy[i, j]:.2f}")
    with_p = _pairwise(
        names,
        arrays.mmd,
        (0.0, float(arrays.mmd.max())),
        lambda i, j: f"{arrays.mmd[i, j]:.3f}\n{p_equation(float(arrays.p[i, j]))}",
    )
    panels = [
        Panel("Accuracy of a domain classifier (chance: 0.5)", x, y, [accuracy]),
        Panel("MMD² and its permutation p-value", x, y, [with_p]),
    ]
    overall = f"{accuracy_text(100 * arrays.overall)} % (chance: {100 / len(names):.0f} %)"
    caption = (
        f"{arrays.title}. Accuracy of a classifier of all {len(names)} domains: {overall}. Without a shift the "
        "pairwise accuracy is near 0.5. MMD² is above 0 by chance even without a shift, more so with few samples; its "
        "p-value takes that into account."
    )
    return Chart(id, "Shift between domains", caption, panels, command=command)


def _pairwise(
    names: Sequence[str], value: Floats, scale: tuple[float, float], text: Callable[[int, int], str]
) -> Cells:
    """A heat map of pairs of domains; a domain with itself is left empty."""
    k = range(len(names))
    written = [["" if i == j else text(i, j) for j in k] for i in k]
    hovered = [[f"{names[i]} and {names[j]}: {text(i, j)}".replace("\n", ", ") for j in k] for i in k]
    return grid(np.where(np.eye(len(names), dtype=bool), np.nan, value), hovered, *scale, written)
