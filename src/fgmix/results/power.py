"""What a comparison can find: the difference that a paired test detects with 80 % power."""

from __future__ import annotations

import math
from functools import cache

from fgmix.results.rounding import points_text

ALPHA = 0.05  # level of significance; intervals cover 1 − α
POWER = 0.8  # probability of finding a difference that counts as detectable
GUESS = 2.0  # points; the spread of FGMix − ERM on PACS is 2.05 (docs/replication.md)
MORE_TRIALS = 10  # with which a plan is compared


def detectable_difference(spread: float | None, pairs: int, alpha: float = ALPHA) -> float | None:
    """Compute the difference that a two-sided t test of pairs finds with 80 % power; None for a single pair.

    With n pairs whose differences have the standard deviation s, the test statistic of a true difference δ has a
    noncentral t distribution with n − 1 degrees of freedom and noncentrality δ √n / s. Wilcoxon's test needs about 5 %
    more pairs (Hodges and Lehmann, 1956, https://doi.org/10.1214/aoms/1177728261).

    Args:
        spread: standard deviation of the differences.
        pairs: their number.
        alpha: level of the test; with Holm's correction of m tests, the strictest is α / m.

    Example:
        >>> round(detectable_difference(2.05, 12), 1)
        1.8
    """
    if spread is None or pairs < 2:
        return None
    return spread / math.sqrt(pairs) * _find_noncentrality(pairs - 1, alpha)


@cache  # the rows of a table have few numbers of pairs
def _find_noncentrality(freedom: int, alpha: float) -> float:
    """Find the noncentrality at which a two-sided t test at level α has the power `POWER`."""
    from scipy.optimize import brentq
    from scipy.stats import nct, t

    critical = float(t.isf(alpha / 2, freedom))
    return float(brentq(lambda nc: float(nct.sf(critical, freedom, nc)) - POWER, 0.0, 3 * critical + 10))


def describe_power(trials: int, domains: int, rows: int, spread: float) -> str:
    """Say what a sweep can find: with its trials and with more, before and after Holm's correction over its rows.

    >>> describe_power(3, 4, 2, 2.05)
    "3 trials × 4 test domains detect about 1.8 points; 10 trials 0.9 (2.1 and 1.0 after Holm's correction over 2 rows)"
    """
    counts = [trials, MORE_TRIALS] if trials < MORE_TRIALS else [trials]
    alone, holm = ([_describe_detectable(spread, n * domains, ALPHA / m) for n in counts] for m in (1, rows))
    design = f"{trials} trial{'s' if trials > 1 else ''} × {domains} test domain{'s' if domains > 1 else ''}"
    more = "".join(f"; {MORE_TRIALS} trials {points}" for points in alone[1:])
    corrected = f" ({' and '.join(holm)} after Holm's correction over {rows} rows)" if rows > 1 else ""
    return f"{design} detect about {alone[0]} points{more}{corrected}"


def _describe_detectable(spread: float, pairs: int, alpha: float) -> str:
    points = detectable_difference(spread, pairs, alpha)
    return "no" if points is None else points_text(points)
