"""Intervals of a mean difference, for these test domains and for a new one like them, and tests of equivalence.

With d_{t,i} the difference of two rows on test domain t in trial i, n_t trials on each of k domains and
d̄_t = mean_i d_{t,i}:

    estimate         m = mean_t d̄_t
    these domains    m ± t_ν · s · √(Σ_t 1/n_t) / k,    s² = Σ_t Σ_i (d_{t,i} − d̄_t)² / ν,   ν = Σ_t (n_t − 1)
    new domains      m ± t_{k−1} · sd_t(d̄_t) / √k

The first treats the test domains as fixed: it says how m would vary with other trials (splits, seeds) on them. The
second treats them as drawn from a population of domains: it is about the expected difference on a new domain of that
population, and four domains make it wide whatever the number of trials. A single new domain may lie outside of it. The
first needs a domain with two trials, the second needs two domains.

Student, "The probable error of a mean", 1908, https://doi.org/10.1093/biomet/6.1.1.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fgmix.records.metrics import Floats

Interval = tuple[float, float]


@dataclass(frozen=True)
class MeanDifference:
    """The mean over test domains of a row's mean difference from another.

    Args:
        by_domain: differences of the trials, in percentage points, by test domain; at least one each.

    Example:
        >>> d = MeanDifference({"photo": np.array([1.0, 3.0]), "sketch": np.array([0.0, 2.0])})
        >>> d.mean, d.freedom, [round(end, 2) for end in d.interval(0.05)]
        (1.5, 2, [-1.54, 4.54])
    """

    by_domain: Mapping[Hashable, Floats]

    @cached_property
    def domain_means(self) -> Floats:
        """The mean of each test domain (k,)."""
        return np.array([float(np.mean(d)) for d in self.by_domain.values()])

    @property
    def mean(self) -> float:
        """The mean of the domains' means: every domain counts the same."""
        return float(self.domain_means.mean())

    @property
    def freedom(self) -> int:
        """ν, the degrees of freedom within the test domains; 0 if no domain has two trials."""
        return sum(len(d) - 1 for d in self.by_domain.values())

    @cached_property
    def error(self) -> float:
        """Standard error of the mean over other trials on these domains; NaN without degrees of freedom."""
        if not self.freedom:
            return math.nan
        squares = sum(float(((d - np.mean(d)) ** 2).sum()) for d in self.by_domain.values())
        shares = sum(1 / len(d) for d in self.by_domain.values())
        return math.sqrt(squares / self.freedom * shares) / len(self.by_domain)

    def interval(self, alpha: float = 0.05) -> Interval | None:
        """Compute the interval for these test domains; None if no domain has two trials."""
        return _interval(self.mean, self.error, self.freedom, alpha)

    def interval_for_new(self, alpha: float = 0.05) -> Interval | None:
        """Compute the interval for a new domain drawn like these; None for a single domain."""
        k = len(self.by_domain)
        error = float(self.domain_means.std(ddof=1)) / math.sqrt(k) if k > 1 else math.nan
        return _interval(self.mean, error, k - 1, alpha)

    def test_equivalence(self, margin: float) -> float | None:
        """Compute the p-value of a difference of at least ±margin, for these test domains; None without a second trial.

        It is the larger one of two one-sided t tests (Schuirmann, 1987, https://doi.org/10.1007/BF01068419): at most α
        if the interval of coverage 1 − 2α lies within ±margin.
        """
        from scipy.stats import t

        room = margin - abs(self.mean)
        if not self.freedom:
            return None
        return float(t.sf(room / self.error, self.freedom)) if self.error else float(room <= 0)


def _interval(mean: float, error: float, freedom: int, alpha: float) -> Interval | None:
    from scipy.stats import t

    if freedom < 1:
        return None
    half = float(t.isf(alpha / 2, freedom)) * error
    return mean - half, mean + half
