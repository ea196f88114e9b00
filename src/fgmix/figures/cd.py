"""Critical differences: average ranks, and the groups of algorithms without a significant difference.

Demšar, "Statistical Comparisons of Classifiers over Multiple Data Sets", 2006, https://jmlr.org/papers/v7/demsar06a.html.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fgmix.figures.arrays import Floats, Ints, Texts
from fgmix.figures.description import INK, Axis, Chart, Line, Mark, Panel, Points, Words, to_ink
from fgmix.figures.looks import GREY, assign_looks
from fgmix.records.rows import Labels, label_row
from fgmix.results.ranks import Ranking, describe_unranked
from fgmix.results.rounding import p_equation, rank_text


@dataclass(frozen=True, eq=False)
class Ranks:
    """A critical-difference diagram."""

    methods: Texts  # labels of the algorithms, best first (m,)
    algorithms: Texts  # their keys (m,)
    ranks: Floats  # average ranks (m,)
    cliques: Ints  # first and last algorithm of each group without a significant difference (b, 2)
    critical_difference: float  # Nemenyi's
    pairs: int  # number of pairs of trial and test domain that were ranked
    p: float  # p-value of Friedman's test
    not_ranked: str = ""  # which algorithms have no rank, and why, in a sentence; empty if all have one


def collect_ranks(ranking: Ranking, labels: Labels) -> Ranks:
    """Collect average ranks, and the groups without a significant difference."""
    place = {method: i for i, method in enumerate(ranking.ranks)}
    return Ranks(
        methods=np.array([label_row(labels, method) for method in ranking.ranks]),
        algorithms=np.array([method.algorithm for method in ranking.ranks]),
        ranks=np.array(list(ranking.ranks.values())),
        cliques=np.array([(place[c[0]], place[c[-1]]) for c in ranking.cliques()], dtype=np.int64).reshape(-1, 2),
        critical_difference=ranking.critical_difference,
        pairs=ranking.pairs,
        p=ranking.p,
        not_ranked=describe_unranked(ranking, labels),
    )


def describe_ranks(arrays: Ranks) -> Chart:
    """Describe ranks as points, one row per algorithm; bars at the right join those that cannot be told apart."""
    labels = [str(label) for label in arrays.methods]
    marks: list[Mark] = []
    looks = assign_looks(arrays.algorithms.tolist())
    for place, (label, key, rank) in enumerate(zip(labels, arrays.algorithms.tolist(), arrays.ranks)):
        text = f"{label}: average rank {rank_text(rank)}"
        marks.append(Points("", [rank], [place], to_ink(looks[key].colour), looks[key].marker, [text]))
    right, gap = float(arrays.ranks.max()), 0.03 * max(1.0, float(np.ptp(arrays.ranks)))
    for b, (first, last) in enumerate(arrays.cliques):  # beside the rows that they join
        text = f"cannot be told apart: {', '.join(labels[first : last + 1])}"
        x = right + gap * (b + 2)
        marks.append(Line("", [x, x], [first - 0.3, last + 0.3], INK, width=3, text=text))
    top = -1.3
    start, length = float(arrays.ranks[0]), arrays.critical_difference
    text = f"CD = {rank_text(length)}"
    marks.append(Line("", [start, start + length], [top, top], GREY, width=2, text=text))  # from the best rank
    marks.append(Words([start + length / 2], [top - 0.4], [text]))
    names = tuple((float(i), f"{name} ({rank_text(rank)})") for i, (name, rank) in enumerate(zip(labels, arrays.ranks)))
    y = Axis("", names, top - 0.7, len(labels) - 0.4, flipped=True)
    joined = "Bars at the right join methods that these pairs cannot tell apart, whose ranks differ by less than"
    alone = "Ranks that differ by less than this cannot be told apart:"
    caption = (
        f"Average rank over {arrays.pairs} trials and test domains, the best on the left (Friedman, "
        f"{p_equation(arrays.p)}). {joined if len(arrays.cliques) else alone} "
        f"{rank_text(length)} (Nemenyi). {arrays.not_ranked}"
    ).strip()
    return Chart("Ranks", caption, [Panel("", Axis("Average rank"), y, marks)])
