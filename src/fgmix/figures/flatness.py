"""Flatness: squared loss difference around minima, by distance.

Its claim: the ratio of the areas under mean (L(φ*) − L(φ′))², of an algorithm and of the first one (ERM), is below 1:
its minimum is flatter. Interval: bootstrap of the directions, which both share.

The areas are over the change of the logits relative to their margin. Those over the distance γ, the paper's measure,
depend on the scale of the codes: the same function with smaller codes and a larger classifier is flatter by it (Dinh
et al., "Sharp Minima Can Generalize For Deep Nets", 2017, https://arxiv.org/abs/1703.04933). It is drawn, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fgmix.figures.arrays import Floats, Texts
from fgmix.figures.description import (
    Axis,
    Band,
    Chart,
    Line,
    Mark,
    Panel,
    Words,
    connect_points,
    lay_out_rows,
    title_rows,
)
from fgmix.figures.looks import GREY, list_looks
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
    # Change of the logits over their median margin (f,), and the squared differences there (m, directions, f); empty
    # for a network, and in files of earlier versions
    noises: Floats = field(default_factory=lambda: np.empty(0))
    relative_gaps: Floats = field(default_factory=lambda: np.empty((0, 0, 0)))


@dataclass(frozen=True)
class Ratio:
    """The area of an algorithm over that of another, with its interval."""

    method: str
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


def decide(arrays: Flatness) -> list[Ratio]:
    """Divide the areas that decide the claim: relative to the margin, over γ where those are missing."""
    if len(arrays.noises):
        return divide_areas(arrays.methods, arrays.noises, arrays.relative_gaps)
    return divide_areas(arrays.methods, arrays.gammas, arrays.gaps)


def divide_areas(methods: Texts, x: Floats, gaps: Floats) -> list[Ratio]:
    """Divide the area under the gaps (m, directions, x) of every other algorithm by that of the first."""
    from scipy.integrate import trapezoid

    areas = trapezoid(gaps, x, axis=-1)  # (m, directions)
    return [_divide(str(name), own, areas[0]) for name, own in zip(methods[1:], areas[1:])]


def _divide(method: str, own: Floats, base: Floats) -> Ratio:
    """Divide means over directions, with a bootstrap interval; direction i is the same in both."""
    n = len(own)
    drawn = numpy_generator("ratio", n).integers(0, n, (RESAMPLES, n))
    below = base[drawn].mean(1)
    ratios = own[drawn].mean(1) / np.where(below > 0, below, np.nan)
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = np.nanquantile(ratios, tails) if np.isfinite(ratios).any() else (np.nan, np.nan)
    value = float(own.mean() / base.mean()) if base.mean() > 0 else float("nan")
    return Ratio(method, value, float(low), float(high))


def claim_flatness(rows: Sequence[Flatness]) -> list[str]:
    """State whether each minimum is flatter than the first algorithm's, with the ratios of each test domain."""
    first = rows[0]
    if len(first.methods) < 2:
        return []
    claim = (
        f"Claim: the minimum of a method is flatter than that of {first.methods[0]}: the ratio of the areas under "
        f"their mean curves is below 1, and so is its 95 % interval (in brackets). {_explain_scale(first)}"
    ).strip()
    ratios = ("; ".join(f"{ratio.method}: {ratio.verdict} ({ratio})" for ratio in decide(row)) for row in rows)
    return [claim, *(f"Test domain {row.test_domains}: {text}." for row, text in zip(rows, ratios))]


def _explain_scale(arrays: Flatness) -> str:
    """Say over what the areas are, and on what the paper's measure depends; empty for a network."""
    if len(arrays.noises):
        return (
            "Areas are over the change of the logits relative to their median margin. Over the distance γ, the paper's "
            "measure, they depend on the scale of the codes: smaller codes with a larger classifier are flatter."
        )
    if arrays.scope == "classifier":
        return "The distance γ depends on the scale of the codes. Compute the figure again for a measure that does not."
    return ""


def describe_flatness(rows: Sequence[Flatness]) -> Chart:
    """Describe a row for each test domain: a panel for each algorithm (directions grey, their mean in colour), then all
    means with the ratios of their areas, over γ and relative to the margin."""
    first, panels = rows[0], lay_out_rows(rows, _describe_row)
    areas = f" Numbers: area under a mean ÷ {first.methods[0]}'s, 95 % interval." if len(first.methods) > 1 else ""
    scale = (
        " Last panel: by the change of the logits relative to their median margin, which decides, because γ depends on "
        "the scale of the codes."
        if len(first.noises)
        else ""
    )
    shown = (
        f"{first.scope.capitalize()}; lower is flatter. Grey: {first.gaps.shape[1]} random directions; colour: their "
        f"mean; band: its standard error.{areas} Panels of single methods share an axis in a row; directions far above "
        f"the others are cut.{scale}"
    )
    caption = "\n".join([shown, *claim_flatness(rows)])
    return Chart(title_rows("Flatness", rows), caption, panels, columns=len(panels) // len(rows))


def _describe_row(arrays: Flatness) -> list[Panel]:
    ticks = tuple((float(gamma), f"{gamma:g}") for gamma in arrays.gammas if gamma % 2 == 0)
    x = Axis("Distance γ" + (" (% of each filter's norm)" if arrays.scope == "network" else ""), ticks or None)
    # Robust over directions, then over algorithms
    top = 1.05 * limit_top([limit_top(gaps.max(1).tolist()) for gaps in arrays.gaps])
    y = Axis("(L(φ*) − L(φ′))²", low=0.0, high=top)
    panels = []
    for method, look, data, gaps in zip(arrays.methods, list_looks(arrays.algorithms), arrays.data, arrays.gaps):
        grey = [Line("", arrays.gammas, gap, GREY, width=0.5, text=f"direction {i}") for i, gap in enumerate(gaps)]
        line = Line("", arrays.gammas, gaps.mean(0), look.ink, width=3, text=f"mean of {len(gaps)}")
        panels.append(Panel(f"{method} ({data})", x, y, [*grey, line]))
    # The means have an axis of their own: on that of single directions they would fill its lowest part.
    highest = limit_top([1.05 * gaps.mean(0).max() for gaps in arrays.gaps])
    means = _describe_means(arrays, arrays.gammas, arrays.gaps, highest)
    panels.append(Panel("all means", x, Axis(y.label, low=0.0, high=highest), means))
    if len(arrays.noises):
        own = limit_top([1.05 * gaps.mean(0).max() for gaps in arrays.relative_gaps])
        marks = _describe_means(arrays, arrays.noises, arrays.relative_gaps, own)
        x, y = Axis("Change ÷ margin"), Axis(y.label, low=0.0, high=own)
        panels.append(Panel("relative to the margin", x, y, marks))
    return panels


def _describe_means(arrays: Flatness, x: Floats, every: Floats, top: float) -> list[Mark]:
    """Describe the means of all algorithms with their standard errors, and the ratios of their areas."""
    marks: list[Mark] = []
    looks = list_looks(arrays.algorithms)
    for method, look, gaps in zip(map(str, arrays.methods), looks, every):
        mean, error = gaps.mean(0), gaps.std(0) / np.sqrt(max(1, len(gaps) - 1))  # 0 for one direction
        marks.append(Band(method, x, np.maximum(mean - error, 0), mean + error, look.ink))
        marks += connect_points(method, x, mean, look.ink, look.marker)
    for place, (look, ratio) in enumerate(zip(looks[1:], divide_areas(arrays.methods, x, every))):
        marks.append(Words([x[0]], [(0.92 - 0.16 * place) * top], [str(ratio)], "start", look.ink))
    return marks


def limit_top(tops: Sequence[float]) -> float:
    """Return the upper limit of an axis for curves with these maxima: the highest, at most `STRETCH` times the median.

    >>> limit_top([1.0, 2.0, 3.0]), limit_top([1.0, 2.0, 300.0])
    (3.0, 8.0)
    """
    finite = [top for top in tops if np.isfinite(top)]
    if not finite:
        return 1.0
    return float(min(max(finite), STRETCH * float(np.median(finite)))) or float(max(finite)) or 1.0
