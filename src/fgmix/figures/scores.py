"""Scores: learned compatibility A_ω against the cosine.

Its claim: A_ω rises with the cosine. Interval of Spearman's ρ: Fisher's z with the variance of Bonett and Wright
(2000), https://doi.org/10.1007/BF02294183
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fgmix.figures.arrays import Floats, Texts
from fgmix.figures.description import Axis, Chart, Panel, Points
from fgmix.figures.looks import choose_look

NORMAL = 1.959964  # quantile of the normal distribution for a 95 % interval


@dataclass(frozen=True, eq=False)
class Scores:
    """Learned compatibility against the cosine, for pairs of domains."""

    pairs: Texts  # "i → j", domains of g_i and g_j (p,)
    score: Floats  # A_ω(g_i, g_j) (p, n)
    cosine: Floats  # cos(g_i, g_j) (p, n)
    rho: Floats  # Spearman's ρ of the two (p,)
    inputs: str  # what g_i and g_j are: "gradients" or "codes"
    test_domains: str  # the domains held out, in words

    @property
    def intervals(self) -> list[tuple[float, float]]:
        """The interval of each ρ."""
        return [bound_rho(float(rho), self.score.shape[1]) for rho in self.rho]


def bound_rho(rho: float, n: int) -> tuple[float, float]:
    """Compute the 95 % interval of Spearman's ρ of n pairs.

    >>> low, high = bound_rho(0.5, 200)
    >>> round(low, 2), round(high, 2)
    (0.38, 0.6)
    """
    if n < 4 or not abs(rho) < 1:
        return rho, rho
    half = NORMAL * math.sqrt((1 + rho**2 / 2) / (n - 3))
    z = math.atanh(rho)
    return math.tanh(z - half), math.tanh(z + half)


def claim_scores(rows: Sequence[Scores]) -> list[str]:
    """State in which pairs of domains A_ω rises with the cosine."""
    lines = [
        f"Claim: A_ω rises with the cosine of {rows[0].inputs}: Spearman's ρ is above 0 (95 % interval in brackets)."
    ]
    for row in rows:
        values = [
            f"{pair} {rho:.2f} [{low:.2f}, {high:.2f}]"
            for pair, rho, (low, high) in zip(row.pairs, row.rho, row.intervals)
        ]
        lines.append(f"Test domain {row.test_domains}: {_count_rising(row)}; {', '.join(values)}.")
    return lines


def _count_rising(arrays: Scores) -> str:
    """Say in how many pairs of domains A_ω rises with the cosine."""
    return f"it does in {sum(low > 0 for low, _ in arrays.intervals)} of {len(arrays.rho)} pairs of domains"


def describe_scores(arrays: Scores) -> Chart:
    """Describe a scatter plot for each ordered pair of domains, all on the same axes."""
    colour = choose_look("fgmix").colour
    x = Axis(f"Cosine of {arrays.inputs}", None, *_span(arrays.cosine))
    y = Axis("A_ω", None, *_span(arrays.score))
    panels = []
    for pair, rho, (low, high), cosine, score in zip(
        arrays.pairs, arrays.rho, arrays.intervals, arrays.cosine, arrays.score
    ):
        texts = [f"cosine {c:.3f}, A_ω {s:.3f}" for c, s in zip(cosine, score)]
        title = f"{pair}, ρ = {rho:.2f} [{low:.2f}, {high:.2f}]"
        panels.append(Panel(title, x, y, [Points("", cosine, score, colour, "o", texts)]))
    caption = [
        "Learned compatibility and cosine, for pairs of samples of two source domains; ρ: Spearman's correlation with "
        "its 95 % interval.",
        claim_scores([arrays])[0],
        f"Test domain {arrays.test_domains}: {_count_rising(arrays)}.",  # the numbers are the titles of the panels
    ]
    title = f"Compatibility and cosine, test domain {arrays.test_domains}"
    return Chart(title, "\n".join(caption), panels, columns=min(3, len(panels)))


def _span(values: Floats) -> tuple[float, float]:
    """Return one range for all panels, with a margin."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    margin = 0.05 * (high - low) or 0.5
    return low - margin, high + margin
