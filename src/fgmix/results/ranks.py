"""Average ranks of methods: Friedman's test, and Nemenyi's critical difference (Demšar, 2006).

Copies of other rows are not ranked. The test is that of scipy.stats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fgmix.errors import UserError
from fgmix.records.rows import Labels, Row, label_row
from fgmix.results.rounding import p_equation, rank_text
from fgmix.results.selection import Selection
from fgmix.results.statistics import DIGITS, accuracies_by_row, copies
from fgmix.results.tables import Entry, Table, TableRow

RANKS, AVERAGE_RANK = "Ranks", "average rank"  # title of the table, and its column


@dataclass(frozen=True)
class Ranking:
    """Friedman's test, and the data of a critical-difference diagram.

    Args:
        ranks: average rank of each method, best (lowest) first.
        pairs: number of trials and test domains that all methods have.
        statistic: Friedman's χ², corrected for ties.
        p: its p-value.
        critical_difference: average ranks that differ by less are not significantly different (Nemenyi).
        alpha: level of the critical difference.
        copies: methods that are not ranked, each with the one of which it is a copy.
    """

    ranks: Mapping[Row, float]
    pairs: int
    statistic: float
    p: float
    critical_difference: float
    alpha: float
    copies: Mapping[Row, Row]

    def cliques(self) -> list[tuple[Row, ...]]:
        """The largest groups of adjacent methods without a significant difference: the bars of the diagram."""
        methods = list(self.ranks)
        bars: list[tuple[Row, ...]] = []
        reached = 0
        for start, first in enumerate(methods):
            close = [m for m in methods[start:] if self.ranks[m] - self.ranks[first] < self.critical_difference]
            if len(close) > 1 and start + len(close) > reached:
                bars.append(tuple(close))
            reached = max(reached, start + len(close))
        return bars


def rank_rows(selection: Selection, *, dataset: str | None = None, alpha: float = 0.05) -> Ranking:
    """Friedman's test over the pairs that all methods have, without copies.

    Args:
        selection: the selected accuracies.
        dataset: one dataset; None for all.
        alpha: level of the critical difference.
    """
    from scipy.stats import friedmanchisquare, rankdata

    twins = copies(selection, dataset)
    scores = {m: of_m for m, of_m in accuracies_by_row(selection, dataset).items() if m not in twins}
    methods = list(scores)
    pairs = sorted(set.intersection(*(set(of_m) for of_m in scores.values()))) if scores else []
    k, n = len(methods), len(pairs)
    if k < 3 or n < 2:
        raise UserError(
            f"Expected at least 3 methods with 2 trials or test domains in common to rank. Found {k} methods with {n} "
            "in common. Run what is missing, or compare two methods by their differences."
        )
    x = np.round([[scores[m][pair] for m in methods] for pair in pairs], DIGITS)  # (n, k)
    r = rankdata(-x, axis=1)  # rank 1 is the best: the highest accuracy
    all_tied = bool((r == r[:, :1]).all())  # χ² is then 0/0
    statistic, p = (0.0, 1.0) if all_tied else friedmanchisquare(*x.T)
    mean = r.mean(axis=0)
    return Ranking(
        ranks={methods[j]: float(mean[j]) for j in np.argsort(mean, kind="stable")},
        pairs=n,
        statistic=float(statistic),
        p=float(p),
        critical_difference=critical_difference(k, n, alpha),
        alpha=alpha,
        copies=twins,
    )


def critical_difference(methods: int, pairs: int, alpha: float = 0.05) -> float:
    """Nemenyi's critical difference q_α √(k(k+1) / 6n), with q_α the quantile of the studentised range over √2.

    k is the number of methods, n the number of pairs.

    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - alpha, methods, np.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * pairs))


def ranking_table(ranking: Ranking, labels: Labels, title: str = RANKS) -> Table:
    """Average ranks, best first; the caption has Friedman's test and the critical difference."""
    rows = tuple(TableRow(method, (Entry(rank, text=rank_text(rank)),)) for method, rank in ranking.ranks.items())
    caption = (
        f"Average rank over {ranking.pairs} trials and test domains; 1 is the best. Friedman: χ² = "
        f"{ranking.statistic:.2f}, {p_equation(ranking.p)}. Ranks that differ by less than "
        f"{rank_text(ranking.critical_difference)} are not significantly different (Nemenyi, α = {ranking.alpha:g})."
    )
    caption = " ".join(filter(None, (caption, not_ranked(ranking, labels))))
    return Table(title, caption, (AVERAGE_RANK,), rows, labels, best=False)


def not_ranked(ranking: Ranking, labels: Labels) -> str:
    """Which rows have no rank, and why; empty if all have one."""
    found = [
        f"{label_row(labels, method)} (identical to {label_row(labels, twin)})"
        for method, twin in ranking.copies.items()
    ]
    return f"Not ranked: {', '.join(found)}." if found else ""


def unranked_table(methods: Sequence[Row], reason: str, labels: Labels) -> Table:
    """The same table if nothing could be ranked: every method, with the reason as a footnote."""
    rows = tuple(TableRow(method, (Entry(note=reason),)) for method in methods)
    return Table(RANKS, "Average rank over trials and test domains.", (AVERAGE_RANK,), rows, labels, best=False)
