"""Surface: losses and accuracy on the plane through three models, with the paths of training.

Its claim: the averaged path of the second run ends closer to the highest test accuracy on the plane. Interval of the
difference of the distances: bootstrap of the test samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fgmix.figures.arrays import Bools, Floats, Ints, Texts
from fgmix.figures.description import Axis, Cells, Chart, Line, Mark, Panel, Points, lay_out_rows, title_rows
from fgmix.figures.looks import ACCURACY_COLOURS, LOSS_COLOURS, OPTIMUM, list_looks
from fgmix.seeding import numpy_generator

RESAMPLES = 500
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Surface:
    """Values on the plane through three models, and paths projected on it."""

    u: Floats  # grid along û (a,)
    v: Floats  # grid along v̂ (b,)
    panels: Texts  # titles (p,); the last panel is the test accuracy, the others are train losses
    values: Floats  # (p, b, a)
    anchors: Texts  # labels of the three models (3,)
    anchor_points: Floats  # their coordinates (3, 2)
    paths: Texts  # labels of the paths (q,)
    path_algorithms: Texts  # keys of their algorithms (q,)
    path_averaged: Bools  # whether a path is of averaged weights (q,)
    path_panels: Bools  # whether a path is drawn in a panel (q, p)
    path: Ints  # which path a point belongs to (t,)
    path_steps: Ints  # the step of the weights (t,)
    path_points: Floats  # its coordinates (t, 2)
    test_domains: str  # the domains held out, in words
    # Which test samples are classified correctly at each point of the grid (b, a, n): the accuracy is their share.
    # Empty in files of earlier versions.
    correct: Bools = field(default_factory=lambda: np.zeros((0, 0, 0), dtype=np.bool_))

    @property
    def optimum(self) -> Floats:
        """The point (2,) of the plane with the highest test accuracy (see `find_optimum`)."""
        return find_optimum(self.u, self.v, self.values[-1])


@dataclass(frozen=True)
class Ends:
    """Distances of the ends of the two averaged paths from the highest test accuracy."""

    distances: tuple[float, float]  # of the second and of the third model, in the units of the weights
    accuracies: tuple[float, float]  # test accuracies there in percent, interpolated between points of the grid
    closer: float  # by how much the third model is closer than the second
    interval: tuple[float, float] | None  # of `closer`; None if results by test sample are not known
    resolution: float  # half the diagonal of a grid cell, the smallest difference that the grid resolves

    @property
    def is_tie(self) -> bool:
        """Whether the difference is below what the grid resolves, or its interval contains 0."""
        low, high = self.interval or (self.closer, self.closer)
        return abs(self.closer) < self.resolution or low <= 0 <= high


def measure_ends(arrays: Surface) -> Ends:
    """Measure the ends of the averaged paths: the second and the third of the three models, which lie on the plane."""
    from scipy.interpolate import RegularGridInterpolator

    accuracy = arrays.values[-1]
    ends = arrays.anchor_points[1:]
    first, second = np.linalg.norm(ends - arrays.optimum, axis=1).round(9).tolist()
    at = RegularGridInterpolator((arrays.v, arrays.u), accuracy)(ends[:, ::-1]).tolist()
    resolution = math.hypot(arrays.u[1] - arrays.u[0], arrays.v[1] - arrays.v[0]) / 2
    return Ends((first, second), (at[0], at[1]), first - second, _bootstrap_closer(arrays, ends), resolution)


def find_optimum(u: Floats, v: Floats, accuracy: Floats) -> Floats:
    """Find the maximum (2,) of a surface (b, a) on a grid, refined by a quadratic fit.

    A quadratic q is fitted to the 5 × 5 points around the highest one (of several, the one nearest to their mean); the
    result is the maximum of q if it has one among these points, else the highest point itself.

    >>> u = v = np.linspace(-2, 2, 5)
    >>> find_optimum(u, v, -((u - 0.3) ** 2 + (v[:, None] + 0.4) ** 2)).round(3).tolist()
    [0.3, -0.4]
    """
    accuracy = np.nan_to_num(accuracy, nan=-np.inf)
    highest = np.argwhere(accuracy >= accuracy.max())
    row, column = highest[np.square(highest - highest.mean(0)).sum(1).argmin()]
    rows, columns = (np.arange(max(0, at - 2), min(len(axis), at + 3)) for at, axis in ((row, v), (column, u)))
    y, x = (each.ravel() for each in np.meshgrid(rows - row, columns - column, indexing="ij"))
    values = accuracy[np.ix_(rows, columns)].ravel()
    point = np.array([u[column], v[row]])
    if len(values) < 6 or not np.isfinite(values).all():
        return point
    terms = np.stack([np.ones(len(x)), x, y, x * x, x * y, y * y], 1)
    _, along, across, xx, xy, yy = np.linalg.lstsq(terms, values, rcond=None)[0]
    hessian = np.array([[2 * xx, xy], [xy, 2 * yy]])
    if np.linalg.eigvalsh(hessian).max() > -1e-9 * max(1.0, np.abs(values).max()):
        return point  # a ridge or a plateau: q has no maximum
    step = np.linalg.solve(hessian, [-along, -across])
    inside = (x.min() <= step[0] <= x.max()) and (y.min() <= step[1] <= y.max())
    return point + step * (u[1] - u[0], v[1] - v[0]) if inside else point


def _bootstrap_closer(arrays: Surface, ends: Floats) -> tuple[float, float] | None:
    """Compute the interval of how much closer the second end is than the first, resampling test samples."""
    rows, columns, n = arrays.correct.shape
    if n == 0:
        return None
    drawn = numpy_generator("surface", n).multinomial(n, np.full(n, 1 / n), RESAMPLES)  # (r, n)
    accuracies: Floats = drawn.astype(np.float64) @ arrays.correct.reshape(-1, n).T.astype(np.float64)
    points = np.array([find_optimum(arrays.u, arrays.v, each.reshape(rows, columns)) for each in accuracies])  # (r, 2)
    first, second = np.linalg.norm(points - ends[:, None], axis=2)
    low, high = np.quantile(first - second, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def is_at_edge(arrays: Surface) -> bool:
    """Tell whether the highest test accuracy is at the edge of the grid: it may be higher beyond."""
    return any(
        not axis[0] + 0.5 * (axis[1] - axis[0]) < at < axis[-1] - 0.5 * (axis[1] - axis[0])
        for at, axis in zip(arrays.optimum, (arrays.u, arrays.v))
    )


def claim_surface(rows: Sequence[Surface]) -> list[str]:
    """State whether the third model ends closer to the highest test accuracy, with the distances of each row."""
    anchors = rows[0].anchors
    claim = f"Claim: {anchors[2]} ends closer to the highest test accuracy on the plane than {anchors[1]}."
    return [claim, *(f"Test domain {row.test_domains}: {_compare_ends(row)}" for row in rows)]


def _compare_ends(arrays: Surface) -> str:
    ends = measure_ends(arrays)
    verdict = "a tie" if ends.is_tie else "yes" if ends.closer > 0 else "no"
    (first, second), (low, high) = ends.distances, ends.accuracies
    interval = "" if ends.interval is None else " (95 % interval {:.2g} to {:.2g})".format(*ends.interval)
    return (
        f"{verdict}; distance {second:.3g} ({high:.1f} %) against {first:.3g} ({low:.1f} %), a difference of "
        f"{ends.closer:.2g}{interval}; the grid resolves {ends.resolution:.2g}. Highest accuracy on the grid: "
        f"{float(np.nanmax(arrays.values[-1])):.1f} %{', at its edge' if is_at_edge(arrays) else ''}."
    )


def describe_surface(rows: Sequence[Surface]) -> Chart:
    """Describe a row for each test domain: losses on one scale, then the accuracy, with the paths and the models."""
    panels = lay_out_rows(rows, _describe_row)
    straight = any(np.sum(row.path == p) <= 2 for row in rows for p in range(len(row.paths)))
    caption = [
        "The plane through three models, with the training paths projected on it: only the models lie on it. Solid "
        "lines: averaged weights. Star: highest test accuracy, by a quadratic fit around the highest grid point. Both "
        f"axes have one scale.{' Paths of runs without snapshots are known at their ends only.' if straight else ''}",
        *claim_surface(rows),
    ]
    return Chart(title_rows("Loss surface", rows), "\n".join(caption), panels, columns=len(rows[0].panels))


def _describe_row(arrays: Surface) -> list[Panel]:
    losses = arrays.values[:-1]
    low, high = float(np.nanmin(losses)), float(np.nanquantile(losses, 0.75))  # higher ones are far from every path
    x, y = (Axis(label, None, float(grid[0]), float(grid[-1])) for label, grid in (("û", arrays.u), ("v̂", arrays.v)))
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
            contours=True,
        )
        name = "Both paths" if last else title.removeprefix("Train loss, ")
        marks = [cells, *_describe_paths(arrays, i), *_describe_anchors(arrays, last)]
        panels.append(Panel(name, x, y, marks, equal=True))
    return panels


def _describe_paths(arrays: Surface, panel: int) -> list[Mark]:
    marks: list[Mark] = []
    for p, (label, look) in enumerate(zip(arrays.paths.tolist(), list_looks(arrays.path_algorithms))):
        if arrays.path_panels[p, panel]:
            at = arrays.path == p
            x, y = arrays.path_points[at].T
            texts = [f"{label}, step {step}" for step in arrays.path_steps[at]]
            marks += [
                Line(label, x, y, "#ffffff", width=5),  # a white outline, visible on the heat map
                Line(label, x, y, look.colour, dashed=not arrays.path_averaged[p], width=2),
                Points(label, x, y, look.colour, look.marker, texts),
            ]
    return marks


def _describe_anchors(arrays: Surface, with_optimum: bool) -> list[Mark]:
    marks: list[Mark] = [
        Points(f"{label} model", [x], [y], "#ffffff", marker, [str(label)], outlined=True)
        for label, marker, (x, y) in zip(arrays.anchors, "osD", arrays.anchor_points)
    ]
    name = "Highest test accuracy" + (", at the edge of the grid" if is_at_edge(arrays) else "")
    x, y = arrays.optimum
    return [*marks, Points(name, [x], [y], OPTIMUM, "*", [name], outlined=True)] if with_optimum else marks
