"""Intervals of a mean difference, for these test domains and for new ones, and what a comparison could have seen.

With d_{t,i} the difference of two rows on test domain t in trial i, and n_t trials on each of k domains:

    estimate        m = mean_t d̄_t,                         d̄_t = mean_i d_{t,i}
    these domains   m ± t_ν · s · √(Σ_t 1/n_t) / k,          s² = Σ_t Σ_i (d_{t,i} − d̄_t)² / ν,   ν = Σ_t (n_t − 1)
    new domains     m ± t_{k−1} · sd_t(d̄_t) / √k

The first treats the test domains as fixed: it says how m would vary with other trials (splits, seeds) on the same
domains. The second treats them as drawn from a population of domains: it says where the mean difference over new
domains of that population lies, and four domains make it wide whatever the number of trials.

Student, "The probable error of a mean", 1908, https://doi.org/10.1093/biomet/6.1.1.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fgmix.records.metrics import Floats

POWER = 0.8  # of the difference that counts as detectable
Interval = tuple[float, float]


@dataclass(frozen=True)
class MeanDifference:
    """The mean over test domains of a row's mean difference from another.

    Args:
        by_domain: differences of the trials, in percentage points, by test domain; at least one each.

    Example:
        >>> d = MeanDifference({"photo": np.array([1.0, 3.0]), "sketch": np.array([0.0, 2.0])})
        >>> d.mean, round(d.error, 3), d.freedom, [round(end, 2) for end in d.interval(0.05)]
        (1.5, 0.707, 2, [-1.54, 4.54])
    """

    by_domain: Mapping[Hashable, Floats]

    @cached_property
    def domain_means(self) -> Floats:
        return np.array([float(np.mean(d)) for d in self.by_domain.values()])

    @property
    def mean(self) -> float:
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
        return math.sqrt(squares / self.freedom * sum(1 / len(d) for d in self.by_domain.values())) / len(
            self.by_domain
        )

    @property
    def domain_error(self) -> float:
        """Standard error of the mean over other domains; NaN for a single one."""
        means = self.domain_means
        return float(means.std(ddof=1)) / math.sqrt(len(means)) if len(means) > 1 else math.nan

    def interval(self, alpha: float = 0.05) -> Interval | None:
        """Compute the interval for these test domains; None if no domain has two trials."""
        return _interval(self.mean, self.error, self.freedom, alpha)

    def interval_for_new_domains(self, alpha: float = 0.05) -> Interval | None:
        """Compute the interval for domains drawn like these; None for a single domain."""
        return _interval(self.mean, self.domain_error, len(self.by_domain) - 1, alpha)

    def p_value(self) -> float | None:
        """Compute the two-sided p-value of a t test against 0, for these test domains; None without a second trial."""
        from scipy.stats import t

        if not self.freedom:
            return None
        if self.error == 0:
            return 1.0 if self.mean == 0 else 0.0
        return float(2 * t.sf(abs(self.mean) / self.error, self.freedom))

    def detectable(self, alpha: float = 0.05, power: float = POWER) -> float | None:
        """Compute the difference that a test at level α would have found with this power, from the observed spread."""
        return detectable_difference(self.error, self.freedom, alpha, power) if self.freedom else None

    def is_within(self, margin: float, alpha: float = 0.05) -> bool:
        """Test equivalence: whether both one-sided t tests reject a difference beyond ±margin.

        The same as whether the 1 − 2α interval lies within ±margin (Schuirmann, 1987,
        https://doi.org/10.1007/BF01068419).
        """
        interval = self.interval(2 * alpha)
        return interval is not None and -margin < interval[0] and interval[1] < margin


def detectable_difference(error: float, freedom: int, alpha: float = 0.05, power: float = POWER) -> float:
    """Compute the true difference at which a two-sided t test at level α has the given power.

    The test statistic of a difference δ has a noncentral t distribution with noncentrality δ / error.

    Args:
        error: standard error of the difference.
        freedom: degrees of freedom.
        alpha: level; of a test among m that Holm corrects, α / m is the strictest.
        power: probability of finding it.

    Example:
        >>> round(detectable_difference(2.05 / 12**0.5, 11), 1)  # 12 pairs with a standard deviation of 2.05
        1.8
    """
    from scipy.optimize import brentq
    from scipy.stats import nct, t

    critical = float(t.isf(alpha / 2, freedom))

    def lacking(noncentrality: float) -> float:
        return power - float(nct.sf(critical, freedom, noncentrality))

    return error * float(brentq(lacking, 0.0, critical + 20.0))


def _interval(mean: float, error: float, freedom: int, alpha: float) -> Interval | None:
    from scipy.stats import t

    if freedom < 1:
        return None
    half = float(t.isf(alpha / 2, freedom)) * error
    return mean - half, mean + half
