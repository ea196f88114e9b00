"""Losses and accuracy on a plane through three models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fgmix.analysis import arrays as kinds
from fgmix.analysis.claims import claims, optimum
from fgmix.plots.looks import ACCURACY_COLOURS, LOSS_COLOURS, OPTIMUM, method_looks
from fgmix.report.charts import Axis, Cells, Chart, Line, Mark, Panel, Points
from fgmix.report.figures.shared import row_title


def surface(id: str, rows: Sequence[kinds.Surface], command: str) -> Chart:
    """A row for each test domain: a heat map for each panel, with the paths of training and the three models."""
    panels = [panel for arrays in rows for panel in _row(arrays, several=len(rows) > 1)]
    caption = [
        "The plane through three models, with the training paths projected on it: only the models lie on it. Solid "
        "lines: averaged weights. Star: highest test accuracy, by a quadratic fit around the highest grid point.",
        *claims(kinds.Rows.of(rows)),
    ]
    return Chart(id, row_title("Loss surface", rows), "\n".join(caption), panels, None, command, len(rows[0].panels))


def _row(arrays: kinds.Surface, several: bool) -> list[Panel]:
    losses = arrays.values[:-1]
    low, high = float(np.nanmin(losses)), float(np.nanquantile(losses, 0.75))
    panels = []
    for i, title in enumerate(map(str, arrays.panels)):
        value = arrays.values[i]
        last = i == len(arrays.panels) - 1
        bottom, top = (float(np.nanmin(value)), float(np.nanmax(value))) if last else (low, high)
        cells = Cells(
            arrays.u,
            arrays.v,
            value,
            [[f"{v:.4g}" for v in row] for row in value],
            bottom,
            top if top > bottom else bottom + 1e-6,
            power=1.0 if last else 2 / 3,  # losses: finer towards the minimum
            label="Test accuracy (%)" if last else "Train loss",
            colours=ACCURACY_COLOURS if last else LOSS_COLOURS,
        )
        name = "Both paths" if last else title.removeprefix("Train loss, ")
        shown = f"{arrays.test_domains}: {name}" if several else name
        best = [_optimum(arrays)] if last else []
        panels.append(Panel(shown, Axis("û"), Axis("v̂"), [cells, *_paths(arrays, i), *_anchors(arrays), *best]))
    return panels


def _paths(arrays: kinds.Surface, panel: int) -> list[Mark]:
    marks: list[Mark] = []
    looks = method_looks(arrays.path_algorithms.tolist())
    for p, label in enumerate(map(str, arrays.paths)):
        if arrays.path_panels[p, panel]:
            at = arrays.path == p
            x, y = arrays.path_points[at].T
            look = looks[str(arrays.path_algorithms[p])]
            texts = [f"{label}, step {step}" for step in arrays.path_steps[at]]
            marks += [
                Line(label, x, y, "#ffffff", width=5),  # a white outline, visible on the heat map
                Line(label, x, y, look.colour, dashed=not arrays.path_averaged[p], width=2),
                Points(label, x, y, look.colour, look.marker, texts),
            ]
    return marks


def _optimum(arrays: kinds.Surface) -> Mark:
    x, y = optimum(arrays)
    return Points("Highest test accuracy", [x], [y], OPTIMUM, "*", ["Highest test accuracy"], outlined=True)


def _anchors(arrays: kinds.Surface) -> list[Mark]:
    return [
        Points(f"{label} model", [x], [y], "#ffffff", marker, [str(label)], outlined=True)
        for label, marker, (x, y) in zip(arrays.anchors, "osD", arrays.anchor_points)
    ]
