"""Average ranks of methods: Friedman's test, and Nemenyi's critical difference (Demšar, 2006).

Copies of other rows are not ranked. The test is that of scipy.stats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fgmix.errors import UserError
from fgmix.records.rows import Labels, Row, label_row, shorten_labels
from fgmix.results.intervals import ALPHA
from fgmix.results.rounding import p_equation, two_decimals
from fgmix.results.selection import Selection
from fgmix.results.statistics import DIGITS, accuracies_by_row, copies
from fgmix.results.tables import Entry, Table, TableRow, order_rows

RANKS, AVERAGE_RANK = "Ranks", "average rank"  # title of the table, and its column


@dataclass(frozen=True)
class Ranking:
    """Friedman's test, and the data of a critical-difference diagram."""

    ranks: Mapping[Row, float]  # average rank of each row, best (lowest) first
    pairs: int  # number of trials and test domains that all rows have
    statistic: float  # Friedman's χ², corrected for ties
    p: float  # its p-value
    critical_difference: float  # average ranks that differ by less are not significantly different (Nemenyi)
    copies: Mapping[Row, Row]  # rows that are not ranked, each with the one of which it is a copy

    def cliques(self) -> list[tuple[Row, ...]]:
        """Find the largest groups of adjacent rows without a significant difference: the bars of the diagram."""
        rows = list(self.ranks)
        bars: list[tuple[Row, ...]] = []
        reached = 0
        for start, first in enumerate(rows):
            close = [row for row in rows[start:] if self.ranks[row] - self.ranks[first] < self.critical_difference]
            if len(close) > 1 and start + len(close) > reached:
                bars.append(tuple(close))
            reached = max(reached, start + len(close))
        return bars


def rank_rows(selection: Selection, *, dataset: str | None = None) -> Ranking:
    """Rank the rows of a dataset, or of all, on the pairs that all of them have, without copies."""
    from scipy.stats import friedmanchisquare, rankdata

    twins = copies(selection, dataset)
    scores = {row: own for row, own in accuracies_by_row(selection, dataset).items() if row not in twins}
    rows = [row for row in order_rows(selection, dataset=dataset) if row in scores]  # of equal ranks the first is first
    pairs = sorted(set.intersection(*map(set, scores.values()))) if scores else []
    k, n = len(rows), len(pairs)
    if k < 3 or n < 2:
        raise UserError(
            f"Expected at least 3 methods with 2 trials or test domains in common to rank. Found {k} methods with {n} "
            "in common. Run what is missing, or compare two methods by their differences."
        )
    x = np.round([[scores[row][pair] for row in rows] for pair in pairs], DIGITS)  # (n, k)
    r = rankdata(-x, axis=1)  # rank 1 is the best: the highest accuracy
    all_tied = bool((r == r[:, :1]).all())  # χ² is then 0/0
    statistic, p = (0.0, 1.0) if all_tied else friedmanchisquare(*x.T)
    mean = r.mean(axis=0)
    return Ranking(
        ranks={rows[j]: float(mean[j]) for j in np.argsort(mean, kind="stable")},
        pairs=n,
        statistic=float(statistic),
        p=float(p),
        critical_difference=critical_difference(k, n),
        copies=twins,
    )


def critical_difference(rows: int, pairs: int) -> float:
    """Compute Nemenyi's critical difference q_α √(k(k+1) / 6n), with q_α the quantile of the studentised range over √2.

    k is the number of rows, n the number of pairs.

    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - ALPHA, rows, np.inf)) / math.sqrt(2)
    return q * math.sqrt(rows * (rows + 1) / (6 * pairs))


def ranking_table(ranking: Ranking, labels: Labels, title: str = RANKS) -> Table:
    """Make the table of average ranks, best first; the caption has Friedman's test and the critical difference."""
    labels = shorten_labels(labels, [*ranking.ranks, *ranking.copies])
    rows = tuple(TableRow(row, (Entry(rank, text=two_decimals(rank)),)) for row, rank in ranking.ranks.items())
    caption = (
        f"Average rank over {ranking.pairs} trials and test domains; 1 is the best. Friedman: χ² = "
        f"{ranking.statistic:.2f}, {p_equation(ranking.p)}. Ranks that differ by less than "
        f"{two_decimals(ranking.critical_difference)} cannot be told apart (Nemenyi, α = {ALPHA:g})."
    )
    caption = " ".join(filter(None, (caption, describe_unranked(ranking, labels))))
    return Table(title, caption, (AVERAGE_RANK,), rows, labels, best=False)


def describe_unranked(ranking: Ranking, labels: Labels) -> str:
    """Say which rows have no rank, and why; empty if all have one."""
    names = [(label_row(labels, row), label_row(labels, twin)) for row, twin in ranking.copies.items()]
    twins = [f"{name} (identical to {twin})" for name, twin in names]
    return f"Not ranked: {', '.join(twins)}." if twins else ""


def unranked_table(rows: Sequence[Row], reason: str, labels: Labels) -> Table:
    """Make the same table if nothing could be ranked: every row, with the reason as a footnote."""
    cells = tuple(TableRow(row, (Entry(note=reason),)) for row in rows)
    return Table(RANKS, "Average rank over trials and test domains.", (AVERAGE_RANK,), cells, labels, best=False)
