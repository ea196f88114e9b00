"""Sensitivity: accuracy by two settings."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fgmix.figures.arrays import Findings, Numbers
from fgmix.figures.description import Chart, Panel, format_accuracy, list_names, map_matrix
from fgmix.results.grid_tables import PAPER_DATASET, grid_tables
from fgmix.results.paper_rows import PAPER
from fgmix.results.published import sensitivity
from fgmix.results.rounding import DASH, accuracy_text


class Sensitivity(Numbers):
    """Accuracy by two settings."""


def collect_sensitivities(findings: Findings) -> Iterator[tuple[str, Sensitivity]]:
    """Collect a heat map for each grid of settings, dataset and algorithm."""
    for grid in findings.runs.grids:
        for table in grid_tables(grid, rule=findings.choices.rule, spread=findings.choices.spread):
            yield table.title, Sensitivity.from_table(table)


def read_paper_sensitivity() -> Sensitivity:
    """Read the paper's accuracies by λ₀ and α."""
    accuracies = {(lam, alpha): value for (_, lam, alpha), value in sensitivity().items()}
    lams, alphas = sorted({lam for lam, _ in accuracies}), sorted({alpha for _, alpha in accuracies})
    value = np.array([[accuracies[lam, alpha] for alpha in alphas] for lam in lams])
    return Sensitivity(
        title=f"{PAPER_DATASET}: FGMix by λ₀ and α ({PAPER})",
        corner="λ₀",
        rows=np.array([f"{lam:g}" for lam in lams]),
        algorithms=np.full(len(lams), "fgmix"),
        published=np.full(len(lams), True),
        columns=np.array([f"α = {alpha:g}" for alpha in alphas]),
        value=value,
        spread=np.full_like(value, np.nan),
    )


def describe_sensitivity(arrays: Sensitivity) -> Chart:
    """Describe a heat map with a cell for each combination."""
    name, _, _ = str(arrays.columns[0]).partition(" = ")  # the name in "α = 0.1" is the label of the axis
    heads = [str(column).removeprefix(f"{name} = ") for column in arrays.columns]
    text = [
        [
            f"{arrays.corner} = {row}, {column}: {format_accuracy(v, s)}"
            for column, v, s in zip(arrays.columns, *numbers)
        ]
        for row, *numbers in zip(arrays.rows, arrays.value, arrays.spread)
    ]
    written = [[DASH if np.isnan(v) else accuracy_text(v) for v in row] for row in arrays.value]
    low, high = float(np.nanmin(arrays.value)), float(np.nanmax(arrays.value))
    cells = map_matrix(arrays.value, text, low, high, written)
    x, y = list_names(heads, name), list_names([str(row) for row in arrays.rows], arrays.corner, flipped=True)
    return Chart(arrays.title, "Accuracy (%) on the test domains.", [Panel("", x, y, [cells])])
