"""Comparisons of methods: differences from a baseline with their intervals, and ranks with the critical difference.

Demšar, "Statistical Comparisons of Classifiers over Multiple Data Sets", 2006, https://jmlr.org/papers/v7/demsar06a.html.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fgmix.figures.arrays import Findings, Floats, Ints, Texts
from fgmix.figures.description import (
    INK,
    Axis,
    Chart,
    Line,
    Mark,
    Panel,
    Points,
    Words,
    are_close,
    list_names,
    point_outside,
)
from fgmix.figures.looks import GREY, list_looks
from fgmix.records.rows import Labels, label_row, shorten_labels
from fgmix.results.differences import COVERAGE, describe_verdict, explain_sharing, name_baseline
from fgmix.results.ranks import Ranking, describe_unranked
from fgmix.results.report import compare_all, has_overall
from fgmix.results.rounding import difference_text, interval_text, p_equation, two_decimals
from fgmix.results.statistics import Comparison

THESE, NEW = "for these test domains", "for a new test domain"
FEW = 8  # rows from which on outliers are cut off
BELOW = 0.2  # of a row, where the line for a new domain is drawn


@dataclass(frozen=True, eq=False)
class Differences:
    """Differences from a baseline, in percentage points."""

    methods: Texts  # labels of the rows (m,)
    algorithms: Texts  # their keys (m,)
    difference: Floats  # means over test domains (m,)
    interval: Floats  # ends for these test domains, NaN where there is none (m, 2)
    new_interval: Floats  # ends for a new test domain, likewise (m, 2)
    significant: Ints  # 1 where the difference is significant (m,)
    results: Texts  # the result of each comparison, in words (m,)
    baseline: str  # its label
    about: str = ""  # sentences on averaged rows, if there are some
    dataset: str = ""  # of the runs; empty over all
    where: str = ""  # which datasets, if there are figures of several


def collect_differences(findings: Findings) -> Iterator[tuple[str, Differences]]:
    """Collect the differences on each dataset, and over all if there are several."""
    selection, choices = findings.selection, findings.choices
    by_dataset = {
        dataset: comparisons
        for dataset, comparisons in compare_all(selection, choices.baseline, choices.margin).items()
        if any(c.interval or c.new_interval for c in comparisons) and (dataset or has_overall(selection))
    }
    if len(by_dataset) == 2:  # over all repeats the only dataset
        by_dataset.pop(None, None)
    for dataset, comparisons in by_dataset.items():
        key = comparisons[0].baseline.runs.anywhere.key
        where = (dataset or "all datasets") if len(by_dataset) > 1 else ""
        arrays = arrange_differences(comparisons, selection.labels)
        yield f"{key} {where}", replace(arrays, dataset=dataset or "", where=where)


def arrange_differences(comparisons: Sequence[Comparison], labels: Labels) -> Differences:
    """Arrange the comparisons that have pairs, the largest difference first."""
    known = sorted((c for c in comparisons if c.difference is not None), key=lambda c: -(c.difference or 0.0))
    labels = shorten_labels(labels, [row for c in known for row in (c.row, c.baseline)])
    none, name = (np.nan, np.nan), name_baseline(comparisons, labels)
    averaged = any(c.row.model != "raw" for c in known)
    about = f"Averaged weights are compared with averaged {name}. {explain_sharing(known, labels)}" if averaged else ""
    return Differences(
        methods=np.array([label_row(labels, c.row) for c in known]),
        algorithms=np.array([c.row.anywhere.key for c in known]),
        difference=np.array([c.difference for c in known], dtype=float),
        interval=np.array([c.interval or none for c in known]).reshape(-1, 2),
        new_interval=np.array([c.new_interval or none for c in known]).reshape(-1, 2),
        significant=np.array([int(c.significant) for c in known]),
        results=np.array([f"{c.pairs} pairs; {describe_verdict(c, labels)}" for c in known]),
        baseline=name,
        about=about,
    )


def find_range(means: Floats, intervals: Floats) -> tuple[float | None, float | None]:
    """Find where an axis begins and ends so that a few outliers do not hide the differences of most rows.

    The axis shows the means that are close to the others, with their intervals; its ends are None where there is no
    outlier.

    >>> find_range(np.array([0.0] * 9 + [-50.0]), np.array([[-1.0, 1.0]] * 9 + [[-60.0, -40.0]]))
    (-1.1, None)
    """
    if len(means) < FEW:
        return None, None
    close = are_close(means)
    shown = np.concatenate([means[close, None], intervals[close]], axis=1)
    low, high = float(np.nanmin(shown)), float(np.nanmax(shown))
    margin = 0.05 * (high - low)
    far, middle = means[~close], float(np.median(means))
    return low - margin if (far < middle).any() else None, high + margin if (far > middle).any() else None


def describe_differences(arrays: Differences) -> Chart:
    """Describe means with a line for each interval; grey where they are not significant.

    A mean outside of the axis is written at its end, with an arrow.
    """
    low, high = find_range(arrays.difference, np.concatenate([arrays.interval, arrays.new_interval], axis=1))
    x, rows = Axis("Difference (percentage points)", low=low, high=high), arrays.methods.tolist()
    marks: list[Mark] = [Line("", [0, 0], [-0.5, len(rows) - 0.5], GREY, dashed=True, width=1)]
    for place, (label, look, mean) in enumerate(zip(rows, list_looks(arrays.algorithms), arrays.difference.tolist())):
        own, new = ((float(ends[place, 0]), float(ends[place, 1])) for ends in (arrays.interval, arrays.new_interval))
        known = [each for each in ((new, NEW, BELOW, 1), (own, THESE, 0, 2)) if np.isfinite(each[0]).all()]
        where = ", ".join(f"{interval_text(ends)} {what}" for ends, what, _, _ in reversed(known))
        text = f"{label}: {f'{difference_text(mean)} points {where}'.strip()}, {arrays.results[place]}"
        colour = look.ink if arrays.significant[place] else GREY
        if outside := point_outside(x, place, mean, difference_text(mean), colour):
            marks += outside
            continue
        for ends, _, below, width in known:
            marks.append(Line("", [*ends], [place + below] * 2, colour, width=width, text=text))
        marks.append(Points("", [mean], [place], colour, look.marker, [text]))
    parts = (
        f"Mean difference over test domains with {COVERAGE} t intervals {THESE} and, thin and below, {NEW}.",
        "" if arrays.significant.all() else "Grey: not significant (Wilcoxon, Holm), or not tested.",
        arrays.about,
    )
    caption = " ".join(filter(None, parts)).strip()
    title = ", ".join(filter(None, (f"Differences from {arrays.baseline}", arrays.where)))
    return Chart(title, caption, [Panel("", x, list_names(rows, flipped=True), marks)])


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
    place = {row: i for i, row in enumerate(ranking.ranks)}
    labels = shorten_labels(labels, [*ranking.ranks, *ranking.copies])
    return Ranks(
        methods=np.array([label_row(labels, row) for row in ranking.ranks]),
        algorithms=np.array([row.algorithm for row in ranking.ranks]),
        ranks=np.array(list(ranking.ranks.values())),
        cliques=np.array([(place[c[0]], place[c[-1]]) for c in ranking.cliques()], dtype=np.int64).reshape(-1, 2),
        critical_difference=ranking.critical_difference,
        pairs=ranking.pairs,
        p=ranking.p,
        not_ranked=describe_unranked(ranking, labels),
    )


def describe_ranks(arrays: Ranks) -> Chart:
    """Describe ranks as points, one row per algorithm; bars at the right join those that cannot be told apart."""
    labels, length = arrays.methods.tolist(), two_decimals(arrays.critical_difference)
    marks: list[Mark] = []
    for place, (label, look, rank) in enumerate(zip(labels, list_looks(arrays.algorithms), arrays.ranks)):
        text = f"{label}: average rank {two_decimals(rank)}"
        marks.append(Points("", [rank], [place], look.ink, look.marker, [text]))
    right, gap = float(arrays.ranks.max()), 0.03 * max(1.0, float(np.ptp(arrays.ranks)))
    for b, (first, last) in enumerate(arrays.cliques):  # beside the rows that they join
        text = f"cannot be told apart: {', '.join(labels[first : last + 1])}"
        x = right + gap * (b + 2)
        marks.append(Line("", [x, x], [first - 0.3, last + 0.3], INK, width=3, text=text))
    top, start, text = -1.3, float(arrays.ranks[0]), f"CD = {length}"
    marks.append(Line("", [start, start + arrays.critical_difference], [top, top], GREY, width=2, text=text))
    marks.append(Words([start + arrays.critical_difference / 2], [top - 0.4], [text]))
    names = [f"{name} ({two_decimals(rank)})" for name, rank in zip(labels, arrays.ranks)]
    y = replace(list_names(names, flipped=True), low=top - 0.7, high=len(labels) - 0.4)
    joined = "Bars join methods without a significant difference: their ranks differ by less than"
    alone = "Ranks that differ by less than this cannot be told apart:"
    caption = (
        f"Over {arrays.pairs} pairs of trial and test domain (Friedman, {p_equation(arrays.p)}). "
        f"{joined if len(arrays.cliques) else alone} {length} (Nemenyi). {arrays.not_ranked}"
    ).strip()
    return Chart("Ranks", caption, [Panel("", Axis(f"Average rank among {len(labels)}, 1 is the best"), y, marks)])
