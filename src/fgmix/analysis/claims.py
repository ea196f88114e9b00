"""What figures claim, and the numbers that decide it. No torch: they come from the arrays of a figure alone.

flatness   ratio of areas under mean (L(φ*) − L(φ′))² over γ, of a method and of the first one (ERM):
           below 1, the method's minimum is flatter; interval: bootstrap of the directions, which both share
surface    distance of the end of each averaged path to the highest test accuracy on the plane
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
    """Means over directions, divided; direction i is the same in both."""
    n = len(own)
    drawn = numpy_generator("ratio", n).integers(0, n, (RESAMPLES, n))
    below = base[drawn].mean(1)
    found = own[drawn].mean(1) / np.where(below > 0, below, np.nan)
    low, high = np.nanquantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if np.isfinite(found).any() else (np.nan,) * 2
    value = float(own.mean() / base.mean()) if base.mean() > 0 else float("nan")
    return Ratio(method, other, value, float(low), float(high))


@dataclass(frozen=True)
class End:
    """Where an averaged path ends.

    Args:
        method: whose.
        distance: to the highest test accuracy on the grid, in the units of the weights.
        accuracy: test accuracy at the grid point nearest to the end, in percent.
    """

    method: str
    distance: float
    accuracy: float


def path_ends(arrays: Surface) -> list[End]:
    """The ends of the averaged paths: the second and the third of the three models, which lie on the plane.

    Of several points with the highest accuracy, the nearest counts.

    Args:
        arrays: values on the plane, and the three models.
    """
    accuracy = arrays.values[-1]
    rows, columns = np.nonzero(accuracy >= np.nanmax(accuracy))
    best = np.stack([arrays.u[columns], arrays.v[rows]], 1)
    ends = []
    for name, (a, b) in zip(map(str, arrays.anchors[1:]), arrays.anchor_points[1:]):
        distance = float(np.hypot(*(best - (a, b)).T).min())
        nearest = accuracy[np.abs(arrays.v - b).argmin(), np.abs(arrays.u - a).argmin()]
        ends.append(End(name, distance, float(nearest)))
    return ends


def rho_interval(rho: float, n: int) -> tuple[float, float]:
    """Interval of Spearman's ρ of n pairs.

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
    """What a figure claims and, for each row, what decides it, in sentences; none for kinds that claim nothing.

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
        "curves is below 1 (95 % interval in brackets)."
    )


def _ratios(arrays: Flatness) -> str:
    return ", ".join(f"{r.method} {r.value:.2f} [{r.low:.2f}, {r.high:.2f}]" for r in area_ratios(arrays)) + "."


def _closer(arrays: Surface) -> str:
    return f"{arrays.anchors[2]} ends closer to the highest test accuracy on the plane than {arrays.anchors[1]}."


def _distances(arrays: Surface) -> str:
    first, second = path_ends(arrays)
    verdict = "it does" if second.distance < first.distance else "it does not"
    return (
        f"{verdict}; distance {second.distance:.3g} ({second.accuracy:.1f} %) against {first.distance:.3g} "
        f"({first.accuracy:.1f} %), highest {float(np.nanmax(arrays.values[-1])):.1f} %."
    )


def _rises(arrays: Scores) -> str:
    return f"A_ω rises with the cosine of {arrays.inputs}: Spearman's ρ is above 0 (95 % interval in brackets)."


def _correlations(arrays: Scores) -> str:
    intervals = [rho_interval(float(rho), arrays.score.shape[1]) for rho in arrays.rho]
    shown = [f"{rho:.2f} [{low:.2f}, {high:.2f}]" for rho, (low, high) in zip(arrays.rho, intervals)]
    found = ", ".join(f"{pair} {each}" for pair, each in zip(arrays.pairs, shown))
    return f"it does in {sum(low > 0 for low, _ in intervals)} of {len(intervals)} pairs of domains; {found}."


# What each kind claims, once for a figure, and what decides it, for each test domain
_CLAIMS: dict[type, tuple[Callable[[Any], str], Callable[[Any], str]]] = {
    Flatness: (_flatter, _ratios),
    Surface: (_closer, _distances),
    Scores: (_rises, _correlations),
}
