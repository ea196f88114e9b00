"""Claims that figures support, with the statistics that decide them, from the arrays of a figure. No torch.

flatness   ratio of areas under mean (L(φ*) − L(φ′))² over γ, of a method and of the first one (ERM):
           below 1, the method's minimum is flatter; interval: bootstrap of the directions, which both share
surface    distance of the end of each averaged path to the highest test accuracy on the plane (`optima`); interval of
           their difference: bootstrap of the test samples
scores     Spearman's ρ of A_ω and the cosine; interval: Fisher's z with the variance of Bonett and Wright (2000),
           https://doi.org/10.1007/BF02294183
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fgmix.analysis.arrays import Flatness, Floats, Scores, Surface, parts_of
from fgmix.seeding import numpy_generator

RESAMPLES = 2000
SURFACE_RESAMPLES = 500  # fewer: each fits a surface
LEVEL = 0.95
NORMAL = 1.959964  # quantile of the normal distribution for `LEVEL`


@dataclass(frozen=True)
class Ratio:
    """The area of a method over that of another, with its interval."""

    method: str
    other: str
    value: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Whether the method's minimum is flatter."""
        if math.isnan(self.value):
            return "not defined, the other's area is 0"
        return "flatter" if self.high < 1 else "sharper" if self.low > 1 else "no difference"


def area_ratios(arrays: Flatness) -> list[Ratio]:
    """The area of every other method over that of the first.

    Args:
        arrays: squared differences by method, direction and distance.
    """
    from scipy.integrate import trapezoid

    areas = trapezoid(arrays.gaps, arrays.gammas, axis=-1)  # (m, directions)
    names = [str(name) for name in arrays.methods]
    return [_ratio(name, names[0], own, areas[0]) for name, own in zip(names[1:], areas[1:])]


def _ratio(method: str, other: str, own: Floats, base: Floats) -> Ratio:
    """Ratio of means over directions, with a bootstrap interval; direction i is the same in both."""
    n = len(own)
    drawn = numpy_generator("ratio", n).integers(0, n, (RESAMPLES, n))
    below = base[drawn].mean(1)
    found = own[drawn].mean(1) / np.where(below > 0, below, np.nan)
    low, high = np.nanquantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if np.isfinite(found).any() else (np.nan,) * 2
    value = float(own.mean() / base.mean()) if base.mean() > 0 else float("nan")
    return Ratio(method, other, value, float(low), float(high))


@dataclass(frozen=True)
class Ends:
    """Distances of the ends of the two averaged paths from the highest test accuracy.

    Args:
        distances: of the second and of the third model, in the units of the weights.
        accuracies: test accuracies there in percent, interpolated between points of the grid.
        closer: by how much the third model is closer than the second.
        interval: of `closer`; None if results by test sample are not known.
        resolution: half the diagonal of a grid cell, the smallest difference that the grid resolves.
    """

    distances: tuple[float, float]
    accuracies: tuple[float, float]
    closer: float
    interval: tuple[float, float] | None
    resolution: float

    @property
    def is_tie(self) -> bool:
        """Whether the difference is below what the grid resolves, or its interval contains 0."""
        low, high = self.interval or (self.closer, self.closer)
        return abs(self.closer) < self.resolution or low <= 0 <= high


def path_ends(arrays: Surface) -> Ends:
    """The ends of the averaged paths: the second and the third of the three models, which lie on the plane.

    Args:
        arrays: values on the plane, and the three models.
    """
    from scipy.interpolate import RegularGridInterpolator

    accuracy = arrays.values[-1]
    ends = arrays.anchor_points[1:]
    first, second = np.linalg.norm(ends - optimum(arrays), axis=1).round(9).tolist()
    at = RegularGridInterpolator((arrays.v, arrays.u), accuracy)(ends[:, ::-1]).tolist()
    resolution = math.hypot(arrays.u[1] - arrays.u[0], arrays.v[1] - arrays.v[0]) / 2
    return Ends((first, second), (at[0], at[1]), first - second, _closer_interval(arrays, ends), resolution)


def optimum(arrays: Surface) -> Floats:
    """The point (2,) of the plane with the highest test accuracy (see `optima`)."""
    (found,) = optima(arrays.u, arrays.v, arrays.values[-1][None])
    return np.asarray(found, dtype=np.float64)


def optima(u: Floats, v: Floats, accuracies: Floats) -> Floats:
    """The maximum (r, 2) of each of several surfaces on a grid, refined by a quadratic fit.

    A quadratic q is fitted to the 5 × 5 points around the highest one (of several, the one nearest to their mean); the
    result is the maximum of q if it has one among these points, else the highest point itself.

    Args:
        u: grid along û (a,).
        v: grid along v̂ (b,).
        accuracies: (r, b, a).

    Example:
        >>> u = v = np.linspace(-2, 2, 5)
        >>> optima(u, v, -((u - 0.3) ** 2 + (v[:, None] + 0.4) ** 2)[None]).round(3).tolist()
        [[0.3, -0.4]]
    """
    return np.array([_optimum(u, v, np.nan_to_num(each, nan=-np.inf)) for each in accuracies])


def _optimum(u: Floats, v: Floats, accuracy: Floats) -> Floats:
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


def _closer_interval(arrays: Surface, ends: Floats) -> tuple[float, float] | None:
    """Bootstrap interval of how much closer the second end is than the first, resampling test samples."""
    rows, columns, n = arrays.correct.shape
    if n == 0:
        return None
    drawn = numpy_generator("surface", n).multinomial(n, np.full(n, 1 / n), SURFACE_RESAMPLES)  # (r, n)
    accuracies: Floats = drawn.astype(np.float64) @ arrays.correct.reshape(-1, n).T.astype(np.float64)
    found = optima(arrays.u, arrays.v, accuracies.reshape(-1, rows, columns))  # (r, 2)
    first, second = np.linalg.norm(found - ends[:, None], axis=2)
    low, high = np.quantile(first - second, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def rho_interval(rho: float, n: int) -> tuple[float, float]:
    """95 % interval of Spearman's ρ of n pairs.

    >>> low, high = rho_interval(0.5, 200)
    >>> round(low, 2), round(high, 2)
    (0.38, 0.6)
    """
    if n < 4 or not abs(rho) < 1:
        return rho, rho
    half = NORMAL * math.sqrt((1 + rho**2 / 2) / (n - 3))
    z = math.atanh(rho)
    return math.tanh(z - half), math.tanh(z + half)


def claims(arrays: Any) -> list[str]:
    """The claim of a figure and, for each row, its statistics, in sentences; none for kinds without a claim.

    Args:
        arrays: of any kind, or rows of them.
    """
    parts = parts_of(arrays)
    if (isinstance(parts[0], Flatness) and len(parts[0].methods) < 2) or type(parts[0]) not in _CLAIMS:
        return []
    claimed, decided = _CLAIMS[type(parts[0])]
    return [f"Claim: {claimed(parts[0])}", *(f"Test domain {part.test_domains}: {decided(part)}" for part in parts)]


def _flatter(arrays: Flatness) -> str:
    return (
        f"the minimum of a method is flatter than that of {arrays.methods[0]}: the ratio of the areas under their mean "
        "curves is below 1, and so is its 95 % interval (in brackets)."
    )


def _ratios(arrays: Flatness) -> str:
    found = [f"{r.method}: {r.verdict} ({r.value:.2f} [{r.low:.2f}, {r.high:.2f}])" for r in area_ratios(arrays)]
    return f"{'; '.join(found)}."


def _closer(arrays: Surface) -> str:
    return f"{arrays.anchors[2]} ends closer to the highest test accuracy on the plane than {arrays.anchors[1]}."


def _distances(arrays: Surface) -> str:
    found = path_ends(arrays)
    verdict = "a tie" if found.is_tie else "yes" if found.closer > 0 else "no"
    (first, second), (low, high) = found.distances, found.accuracies
    interval = "" if found.interval is None else " (95 % interval {:.2g} to {:.2g})".format(*found.interval)
    return (
        f"{verdict}; distance {second:.3g} ({high:.1f} %) against {first:.3g} ({low:.1f} %), closer by "
        f"{found.closer:.2g}{interval}; the grid resolves {found.resolution:.2g}. Highest accuracy on the grid: "
        f"{float(np.nanmax(arrays.values[-1])):.1f} %{', at its edge' if at_edge(arrays) else ''}."
    )


def at_edge(arrays: Surface) -> bool:
    """Whether the highest test accuracy is at the edge of the grid: it may be higher beyond."""
    return any(
        not axis[0] + 0.5 * (axis[1] - axis[0]) < at < axis[-1] - 0.5 * (axis[1] - axis[0])
        for at, axis in zip(optimum(arrays), (arrays.u, arrays.v))
    )


def _rises(arrays: Scores) -> str:
    return f"A_ω rises with the cosine of {arrays.inputs}: Spearman's ρ is above 0 (95 % interval in brackets)."


def rising_pairs(arrays: Scores) -> str:
    """In how many pairs of domains A_ω rises with the cosine, in words."""
    lows = [rho_interval(float(rho), arrays.score.shape[1])[0] for rho in arrays.rho]
    return f"it does in {sum(low > 0 for low in lows)} of {len(lows)} pairs of domains"


def _correlations(arrays: Scores) -> str:
    intervals = [rho_interval(float(rho), arrays.score.shape[1]) for rho in arrays.rho]
    shown = [f"{rho:.2f} [{low:.2f}, {high:.2f}]" for rho, (low, high) in zip(arrays.rho, intervals)]
    found = ", ".join(f"{pair} {each}" for pair, each in zip(arrays.pairs, shown))
    return f"{rising_pairs(arrays)}; {found}."


# The claim of each kind, once for a figure, and its statistics, for each test domain
_CLAIMS: dict[type, tuple[Callable[[Any], str], Callable[[Any], str]]] = {
    Flatness: (_flatter, _ratios),
    Surface: (_closer, _distances),
    Scores: (_rises, _correlations),
}
