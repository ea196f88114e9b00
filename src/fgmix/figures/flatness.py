"""Flatness: squared loss difference around minima, by distance.

Its claim: the ratio of the areas under mean (L(φ*) − L(φ′))² over γ, of an algorithm and of the first one (ERM), is
below 1: its minimum is flatter. Interval: bootstrap of the directions, which both share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fgmix.figures.arrays import Floats, Texts
from fgmix.figures.description import Axis, Band, Chart, Line, Mark, Panel, Words, connect_points, title_rows, to_ink
from fgmix.figures.looks import GREY, assign_looks
from fgmix.seeding import numpy_generator

RESAMPLES = 2000
LEVEL = 0.95
STRETCH = 4.0  # upper limit of an axis, times the median of the curves' maxima


@dataclass(frozen=True, eq=False)
class Flatness:
    """(L(φ*) − L(φ'))² along random directions."""

    scope: str  # "classifier", or "network" (all parameters, filter-normalised directions)
    methods: Texts  # labels of the algorithms (m,)
    algorithms: Texts  # their keys (m,)
    data: Texts  # the codes that L is computed on, for each algorithm (m,): "original" or "original + mixed"
    gammas: Floats  # distances γ (g,); for a network in percent of each filter's norm
    gaps: Floats  # squared differences (m, directions, g)
    test_domains: str  # the domains held out, in words


@dataclass(frozen=True)
class Ratio:
    """The area of an algorithm over that of another, with its interval."""

    method: str
    other: str
    value: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Whether the algorithm's minimum is flatter."""
        if math.isnan(self.value):
            return "not defined, the other's area is 0"
        return "flatter" if self.high < 1 else "sharper" if self.low > 1 else "no difference"

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def divide_areas(arrays: Flatness) -> list[Ratio]:
    """Divide the area of every other algorithm by that of the first."""
    from scipy.integrate import trapezoid

    areas = trapezoid(arrays.gaps, arrays.gammas, axis=-1)  # (m, directions)
    names = [str(name) for name in arrays.methods]
    return [_divide(name, names[0], own, areas[0]) for name, own in zip(names[1:], areas[1:])]


def _divide(method: str, other: str, own: Floats, base: Floats) -> Ratio:
    """Divide means over directions, with a bootstrap interval; direction i is the same in both."""
    n = len(own)
    drawn = numpy_generator("ratio", n).integers(0, n, (RESAMPLES, n))
    below = base[drawn].mean(1)
    ratios = own[drawn].mean(1) / np.where(below > 0, below, np.nan)
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = np.nanquantile(ratios, tails) if np.isfinite(ratios).any() else (np.nan, np.nan)
    value = float(own.mean() / base.mean()) if base.mean() > 0 else float("nan")
    return Ratio(method, other, value, float(low), float(high))


def claim_flatness(rows: Sequence[Flatness]) -> list[str]:
    """State whether each minimum is flatter than the first algorithm's, with the ratios of each test domain."""
    first = rows[0]
    if len(first.methods) < 2:
        return []
    claim = (
        f"Claim: the minimum of a method is flatter than that of {first.methods[0]}: the ratio of the areas under "
        "their mean curves is below 1, and so is its 95 % interval (in brackets)."
    )
    ratios = ("; ".join(f"{ratio.method}: {ratio.verdict} ({ratio})" for ratio in divide_areas(row)) for row in rows)
    return [claim, *(f"Test domain {row.test_domains}: {text}." for row, text in zip(rows, ratios))]


def describe_flatness(rows: Sequence[Flatness]) -> Chart:
    """Describe a row for each test domain: a panel for each algorithm (directions grey, their mean in colour), then all
    means with the ratios of their areas."""
    panels = [panel for arrays in rows for panel in _describe_row(arrays, several=len(rows) > 1)]
    caption = "\n".join([_write_caption(rows), *claim_flatness(rows)])
    return Chart(title_rows("Flatness", rows), caption, panels, columns=len(rows[0].methods) + 1)


def _describe_row(arrays: Flatness, several: bool) -> list[Panel]:
    apart = f"{arrays.test_domains}: " if several else ""
    ticks = tuple((float(gamma), f"{gamma:g}") for gamma in arrays.gammas if gamma % 2 == 0)
    x = Axis("Distance γ" + (" (% of each filter's norm)" if arrays.scope == "network" else ""), ticks or None)
    top = find_top(arrays)
    y = Axis("(L(φ*) − L(φ′))²", low=0.0, high=top)
    panels = []
    together: list[Mark] = []
    keys = arrays.algorithms.tolist()
    looks = assign_looks(keys)
    colours = [to_ink(looks[key].colour) for key in keys]
    for method, key, colour, data, gaps in zip(map(str, arrays.methods), keys, colours, arrays.data, arrays.gaps):
        mean, error = gaps.mean(0), gaps.std(0) / np.sqrt(max(1, len(gaps) - 1))  # 0 for one direction
        grey = [Line("", arrays.gammas, gap, GREY, width=0.5, text=f"direction {i}") for i, gap in enumerate(gaps)]
        line = Line("", arrays.gammas, mean, colour, width=3, text=f"mean of {len(gaps)}")
        panels.append(Panel(f"{apart}{method} ({data})", x, y, [*grey, line]))
        together.append(Band(method, arrays.gammas, np.maximum(mean - error, 0), mean + error, colour))
        together += connect_points(method, arrays.gammas, mean, colour, looks[key].marker)
    for place, (colour, ratio) in enumerate(zip(colours[1:], divide_areas(arrays))):
        together.append(Words([arrays.gammas[0]], [(0.95 - 0.1 * place) * top], [str(ratio)], "start", colour))
    areas = f" (area ÷ {arrays.methods[0]}'s, 95 % interval)" if len(arrays.methods) > 1 else ""
    return [*panels, Panel(f"{apart}all means{areas}", x, y, together)]


def limit_top(tops: Sequence[float]) -> float:
    """Return the upper limit of an axis for curves with these maxima: the highest, at most `STRETCH` times the median.

    >>> limit_top([1.0, 2.0, 3.0]), limit_top([1.0, 2.0, 300.0])
    (3.0, 8.0)
    """
    finite = [top for top in tops if np.isfinite(top)]
    if not finite:
        return 1.0
    return float(min(max(finite), STRETCH * float(np.median(finite)))) or float(max(finite)) or 1.0


def find_top(arrays: Flatness) -> float:
    """Find the upper limit of the axis of a test domain's panels: robust over directions, then over algorithms."""
    return 1.05 * limit_top([limit_top(gaps.max(1).tolist()) for gaps in arrays.gaps])


def _write_caption(rows: Sequence[Flatness]) -> str:
    """Write what is shown, and what is cut off."""
    tops = [find_top(arrays) for arrays in rows]
    cut = {
        str(method): None
        for arrays, top in zip(rows, tops)
        for method, gaps in zip(arrays.methods, arrays.gaps)
        if float(gaps.max()) > top
    }
    above = f" Directions above it are cut: {', '.join(cut)}." if cut else ""
    return (
        f"{rows[0].scope.capitalize()}; lower is flatter. Grey: {rows[0].gaps.shape[1]} random directions; colour: "
        "their mean; band: its standard error. Panels of a row share an axis, which an outlier does not "
        f"stretch.{above}"
    )
