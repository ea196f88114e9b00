"""Which differences from ERM are more than chance: paired by dataset, trial and test domain.

With x_i and y_i a method's and ERM's accuracies on pair i, d_i = x_i − y_i:

    interval    bias-corrected and accelerated bootstrap of mean d (Efron, 1987), pairs resampled
    p           Wilcoxon's signed-rank test, exact with ties too (Wilcoxon, 1945), zeros dropped
    Holm        p values of all methods corrected together (Holm, 1979): the chance of one false claim stays below α
    ranks       Friedman's test over complete pairs, and Nemenyi's critical difference (Demšar, 2006)

A row "cannot be told from ERM" if its corrected p exceeds α. Pairs of one test domain share that domain, so they are
not fully independent: the claims are about these domains, not about new ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fgmix.errors import UserError, bad_value
from fgmix.results.labels import method_label
from fgmix.results.selection import Method, Selection
from fgmix.results.tables import Entry, Row, Table
from fgmix.seeding import numpy_generator

Floats = npt.NDArray[np.float64]
Pair = tuple[str, int, str]  # dataset, trial, test domain
ERM = Method("erm")
MARK = "≈"
RANKS, AVERAGE_RANK = "Ranks", "average rank"  # a table and its column


@dataclass(frozen=True)
class Comparison:
    """A method against the baseline.

    Args:
        method: the method.
        pairs: how many pairs both have.
        difference: mean of the method minus the baseline, in percentage points.
        interval: bootstrap confidence interval of it; None with fewer than two pairs.
        p: Wilcoxon's p value; None without pairs.
        p_holm: the same, corrected for all methods compared.
        alpha: the level of significance.
    """

    method: Method
    pairs: int
    difference: float | None
    interval: tuple[float, float] | None
    p: float | None
    p_holm: float | None
    alpha: float

    @property
    def distinguishable(self) -> bool:
        """Whether the method can be told from the baseline."""
        return self.p_holm is not None and self.p_holm <= self.alpha

    @property
    def note(self) -> str:
        """What a reader should know if nothing could have come out."""
        if self.pairs == 0:
            return "shares no trial and test domain with the baseline"
        if 2.0 ** (1 - self.pairs) > self.alpha:
            return f"{self.pairs} pairs are too few: p cannot go below {2.0 ** (1 - self.pairs):.3g}"
        return ""


@dataclass(frozen=True)
class Ranking:
    """Friedman's test and what a critical-difference diagram shows.

    Args:
        ranks: average rank of each method, best (lowest) first.
        pairs: trials and test domains that all methods have.
        statistic: Friedman's χ², corrected for ties.
        p: its p value, by the χ² distribution with k − 1 degrees of freedom.
        critical_difference: ranks that differ by less cannot be told apart (Nemenyi).
        alpha: level of the critical difference.
    """

    ranks: Mapping[Method, float]
    pairs: int
    statistic: float
    p: float
    critical_difference: float
    alpha: float = 0.05

    def cliques(self) -> list[tuple[Method, ...]]:
        """The largest groups of neighbours that cannot be told apart: the bars of the diagram."""
        methods = list(self.ranks)
        bars: list[tuple[Method, ...]] = []
        reached = 0
        for start, first in enumerate(methods):
            close = [m for m in methods[start:] if self.ranks[m] - self.ranks[first] < self.critical_difference]
            if len(close) > 1 and start + len(close) > reached:
                bars.append(tuple(close))
            reached = max(reached, start + len(close))
        return bars


def accuracies_by_method(selection: Selection, dataset: str | None = None) -> dict[Method, dict[Pair, float]]:
    """Selected accuracies in percent, by method, then by pair.

    Args:
        selection: what was selected.
        dataset: one dataset; None takes all.
    """
    found: dict[Method, dict[Pair, float]] = {}
    for cell, accuracy in selection.accuracies().items():
        if dataset in (None, cell.dataset):
            found.setdefault(cell.method, {})[cell.dataset, cell.trial_seed, cell.test_domain] = 100 * accuracy
    return found


def compare(
    selection: Selection,
    *,
    dataset: str | None = None,
    baseline: Method = ERM,
    alpha: float = 0.05,
    resamples: int = 10_000,
) -> list[Comparison]:
    """Every other method against the baseline, on the pairs that both have.

    Args:
        selection: what was selected.
        dataset: one dataset; None takes all.
        baseline: what to compare with.
        alpha: level of significance; the intervals cover 1 − α.
        resamples: bootstrap resamples. The generator is fixed: the same records give the same intervals.
    """
    if not 0 < alpha < 1:
        raise bad_value("alpha", "between 0 and 1", alpha)
    scores = accuracies_by_method(selection, dataset)
    if baseline not in scores:
        raise UserError(
            f"Expected results of {method_label(*baseline)} to compare with. Found none. Run it, or choose another."
        )
    differences = {m: paired_differences(of_m, scores[baseline]) for m, of_m in scores.items() if m != baseline}
    p_values = {m: wilcoxon(d) for m, d in differences.items() if len(d)}
    corrected = dict(zip(p_values, holm(list(p_values.values()))))
    return [
        Comparison(
            method=method,
            pairs=len(d),
            difference=float(d.mean()) if len(d) else None,
            interval=bootstrap_interval(d, alpha, resamples) if len(d) > 1 else None,
            p=p_values.get(method),
            p_holm=corrected.get(method),
            alpha=alpha,
        )
        for method, d in differences.items()
    ]


def paired_differences(x: Mapping[Pair, float], y: Mapping[Pair, float]) -> Floats:
    """d = x − y on the pairs that both have, in a fixed order."""
    return np.array([x[pair] - y[pair] for pair in sorted(x.keys() & y.keys())], dtype=np.float64)


def bootstrap_interval(d: Floats, alpha: float = 0.05, resamples: int = 10_000) -> tuple[float, float]:
    """BCa confidence interval of the mean of d.

    The percentiles α/2 and 1 − α/2 of the resampled means are moved by the bias z₀ = Φ⁻¹(share of means below the mean)
    and the acceleration a = Σ u³ / (6 (Σ u²)^{3/2}), u = d − mean d (the jackknife's deviations up to a factor):

        Φ(z₀ + (z₀ + z) / (1 − a (z₀ + z))),    z = Φ⁻¹(α/2), Φ⁻¹(1 − α/2).

    Args:
        d: differences, at least two.
        alpha: 1 − coverage.
        resamples: how many means to draw.
    """
    from scipy.special import ndtr, ndtri

    if resamples < 100:
        raise bad_value("resamples", "at least 100", resamples)
    if np.ptp(d) == 0:
        return float(d[0]), float(d[0])  # nothing varies: every resample has the same mean
    means = d[_resampled(len(d), resamples)].mean(axis=1)
    below = (np.count_nonzero(means < d.mean()) + np.count_nonzero(means <= d.mean())) / (2 * resamples)
    z0 = ndtri(below)
    u = d - d.mean()
    a = (u**3).sum() / (6 * (u**2).sum() ** 1.5)
    z = z0 + ndtri(np.array([alpha / 2, 1 - alpha / 2]))
    low, high = np.quantile(means, ndtr(z0 + z / (1 - a * z)))
    return float(low), float(high)


@lru_cache(maxsize=1)  # methods mostly have equally many pairs: without it, a third of the time of all intervals
def _resampled(pairs: int, resamples: int) -> npt.NDArray[np.int64]:
    return numpy_generator("bootstrap", pairs, resamples).integers(pairs, size=(resamples, pairs))


def wilcoxon(d: Floats) -> float:
    """Two-sided p value of Wilcoxon's signed-rank test, from the exact distribution.

    Zeros are dropped, equal |d| share their mean rank, and under the hypothesis every rank is as likely positive as
    negative: the distribution of W⁺ = Σ_{d>0} rank is built rank by rank, so that ties need no approximation.
    """
    d = np.round(d, 9)  # accuracies are shares of counts: what differs by less is the same
    d = d[d != 0]
    if len(d) == 0:
        return 1.0
    doubled = np.rint(2 * _mean_ranks(np.abs(d))).astype(np.int64)  # mean ranks are halves
    chances = np.zeros(int(doubled.sum()) + 1)
    chances[0] = 1.0
    for rank in doubled:
        chances[rank:] = (chances[rank:] + chances[: len(chances) - rank]) / 2
        chances[:rank] /= 2
    w = int(doubled[d > 0].sum())
    return float(min(1.0, 2 * min(chances[: w + 1].sum(), chances[w:].sum())))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the i-th smallest of m is multiplied by m − i + 1, never below the one before.

    >>> holm([0.04, 0.01, 0.03])
    [0.06, 0.03, 0.06]
    """
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def rank_methods(selection: Selection, *, dataset: str | None = None, alpha: float = 0.05) -> Ranking:
    """Friedman's test over the pairs that all methods have.

        χ² = (k − 1) · Σ_j (R_j − N(k+1)/2)² / (Σ_ij r_ij² − N k (k+1)²/4),    R_j = Σ_i r_ij

    Args:
        selection: what was selected.
        dataset: one dataset; None takes all.
        alpha: level of the critical difference.
    """
    from scipy.special import chdtrc

    scores = accuracies_by_method(selection, dataset)
    methods = list(scores)
    pairs = sorted(set.intersection(*(set(of_m) for of_m in scores.values()))) if scores else []
    k, n = len(methods), len(pairs)
    if k < 2 or n < 2:
        raise UserError(
            f"Expected at least two methods with two trials or test domains in common. Found {k} methods and {n} in "
            "common. Run what is missing."
        )
    # rank 1 is the best: the highest accuracy
    r = np.array([_mean_ranks(-np.round([scores[m][pair] for m in methods], 9)) for pair in pairs])  # (n, k)
    sums = r.sum(axis=0)
    spread = (r**2).sum() - n * k * (k + 1) ** 2 / 4
    statistic = (k - 1) * ((sums - n * (k + 1) / 2) ** 2).sum() / spread if spread > 0 else 0.0
    order = np.argsort(sums, kind="stable")
    return Ranking(
        ranks={methods[j]: float(sums[j] / n) for j in order},
        pairs=n,
        statistic=float(statistic),
        p=float(chdtrc(k - 1, statistic)),
        critical_difference=critical_difference(k, n, alpha),
        alpha=alpha,
    )


def critical_difference(methods: int, pairs: int, alpha: float = 0.05) -> float:
    """Nemenyi's: q_α √(k(k+1) / 6N), with q_α the studentised range's quantile over √2.

    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    q = normal_range_quantile(1 - alpha, methods) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * pairs))


def normal_range_quantile(p: float, k: int) -> float:
    """The q below which the range of k standard normal numbers lies with chance p, by bisection of

        P(q) = k ∫ φ(z) (Φ(z) − Φ(z − q))^{k−1} dz,    z the highest of them.

    scipy.stats has it, too, but takes longer to import than a report of a few hundred runs takes in all.
    """
    from scipy.special import ndtr

    z, step = np.linspace(-9, 9, 1801, retstep=True)  # φ(±9) < 1e-17: a plain sum is exact to rounding
    phi = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    low, high = 0.0, 40.0
    while high - low > 1e-12:
        q = (low + high) / 2
        chance = k * step * float((phi * (ndtr(z) - ndtr(z - q)) ** (k - 1)).sum())
        low, high = (q, high) if chance < p else (low, q)
    return high


def marked(table: Table, comparisons: Sequence[Comparison]) -> Table:
    """The table with ≈ after every method that cannot be told from ERM."""
    same = {comparison.method for comparison in comparisons if not comparison.distinguishable}
    if not any(row.method in same for row in table.rows):
        return table
    rows = tuple(replace(row, label=f"{row.label} {MARK}") if row.method in same else row for row in table.rows)
    alpha = comparisons[0].alpha
    meaning = f"{MARK}: cannot be told from ERM (Wilcoxon over trials and test domains, Holm, α = {alpha:g})."
    return replace(table, rows=rows, caption=f"{table.caption} {meaning}")


def comparison_table(comparisons: Sequence[Comparison], baseline: Method = ERM) -> Table:
    """Differences from the baseline with their intervals and p values, as a table."""
    name = method_label(*baseline)
    rows = tuple(
        Row(
            method_label(*c.method),
            (
                Entry(c.difference, text=_with_interval(c), note=c.note),
                Entry(c.p, text=_p_text(c.p)),
                Entry(c.p_holm, text=_p_text(c.p_holm)),
                Entry(c.pairs, text=str(c.pairs)),
                Entry(text=f"not told from {name}" if not c.distinguishable else f"differs from {name}"),
            ),
            c.method,
        )
        for c in comparisons
    )
    coverage = f"{100 * (1 - comparisons[0].alpha):g} %" if comparisons else ""
    caption = (
        f"Difference from {name} in percentage points, paired by trial and test domain, with its {coverage} bootstrap "
        "interval (BCa); p by Wilcoxon's signed-rank test; Holm: corrected for all rows."
    )
    columns = (f"− {name}", "p", "p (Holm)", "pairs", "verdict")
    return Table(f"Differences from {name}", caption, columns, rows, best=False)


def ranking_table(ranking: Ranking) -> Table:
    """Average ranks, best first, and from which difference on they can be told apart."""
    rows = tuple(
        Row(method_label(*method), (Entry(rank, text=f"{rank:.2f}"),), method) for method, rank in ranking.ranks.items()
    )
    caption = (
        f"Average rank over {ranking.pairs} trials and test domains; 1 is the best. Friedman: χ² = "
        f"{ranking.statistic:.2f}, p = {ranking.p:.3g}. Ranks that differ by less than "
        f"{ranking.critical_difference:.2f} cannot be told apart (Nemenyi, α = {ranking.alpha:g})."
    )
    return Table(RANKS, caption, (AVERAGE_RANK,), rows, best=False)


def unranked_table(methods: Sequence[Method], reason: str) -> Table:
    """The same table where nothing could be ranked: every method, and the reason as a footnote."""
    rows = tuple(Row(method_label(*method), (Entry(note=reason),), method) for method in methods)
    return Table(RANKS, "Average rank over trials and test domains.", (AVERAGE_RANK,), rows, best=False)


def _with_interval(comparison: Comparison) -> str:
    if comparison.difference is None:
        return ""
    if comparison.interval is None:
        return f"{comparison.difference:+.1f}"
    low, high = comparison.interval
    return f"{comparison.difference:+.1f} [{low:+.1f}, {high:+.1f}]"


def _p_text(p: float | None) -> str:
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _mean_ranks(values: Floats) -> Floats:
    """Ranks from 1, equal values sharing their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum()
    return (last - (counts - 1) / 2)[inverse]
