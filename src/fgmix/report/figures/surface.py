"""Losses and accuracy on a plane through three models."""

from __future__ import annotations

import numpy as np

from fgmix.analysis import arrays as kinds
from fgmix.plots.looks import method_looks
from fgmix.report.charts import Axis, Cells, Chart, Line, Mark, Panel, Points
from fgmix.report.figures.shared import ink


def surface(id: str, arrays: kinds.Surface, command: str) -> Chart:
    """A heat map for each panel, with the paths of training and the three models."""
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
        )
        panels.append(Panel(title, Axis("û"), Axis("v̂"), [cells, *_paths(arrays, i), *_anchors(arrays)]))
    caption = "The plane through three models, with the training paths projected on it. Solid lines: averaged weights."
    return Chart(id, f"Loss surface, test domain {arrays.test_domains}", caption, panels, command=command)


def _paths(arrays: kinds.Surface, panel: int) -> list[Mark]:
    marks: list[Mark] = []
    looks = method_looks(arrays.path_algorithms.tolist())
    for p, label in enumerate(map(str, arrays.paths)):
        if arrays.path_panels[p, panel]:
            at = arrays.path == p
            x, y = arrays.path_points[at].T
            look = looks[str(arrays.path_algorithms[p])]
            texts = [f"{label}, step {step}" for step in arrays.path_steps[at]]
            colour = ink(look.colour)
            marks += [
                Line(label, x, y, "paper", width=5),  # a rim: visible on light and on dark cells
                Line(label, x, y, colour, dashed=not arrays.path_averaged[p], width=2),
                Points(label, x, y, colour, look.marker, texts),
            ]
    return marks


def _anchors(arrays: kinds.Surface) -> list[Mark]:
    return [
        Points(f"{label} model", [x], [y], "#ffffff", marker, [str(label)], outlined=True)
        for label, marker, (x, y) in zip(arrays.anchors, "osD", arrays.anchor_points)
    ]
