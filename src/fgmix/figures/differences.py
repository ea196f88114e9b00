"""Differences from a baseline, with their intervals for these test domains and for a new one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fgmix.figures.arrays import Findings, Floats, Ints, Texts
from fgmix.figures.description import Axis, Chart, Line, Mark, Panel, Points, Words, list_names, to_ink
from fgmix.figures.looks import GREY, assign_looks
from fgmix.records.rows import Labels, label_row
from fgmix.results.differences import COVERAGE, describe_verdict, explain_sharing, name_baseline
from fgmix.results.report import compare_all, has_overall
from fgmix.results.rounding import difference_text, interval_text
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
    none, name = (np.nan, np.nan), name_baseline(comparisons, labels)
    averaged = any(c.row.model != "raw" for c in known)
    return Differences(
        methods=np.array([label_row(labels, c.row) for c in known]),
        algorithms=np.array([c.row.anywhere.key for c in known]),
        difference=np.array([c.difference for c in known], dtype=float),
        interval=np.array([c.interval or none for c in known]).reshape(-1, 2),
        new_interval=np.array([c.new_interval or none for c in known]).reshape(-1, 2),
        significant=np.array([int(c.significant) for c in known]),
        results=np.array([f"{c.pairs} pairs; {describe_verdict(c, labels)}" for c in known]),
        baseline=name,
        about=f"Averaged weights are compared with averaged {name}. {explain_sharing(known, labels)}"
        if averaged
        else "",
    )


def find_range(means: Floats, intervals: Floats) -> tuple[float | None, float | None]:
    """Find where an axis begins and ends so that a few outliers do not hide the differences of most rows.

    Outliers are means that are three interquartile ranges (at least three points) from the quartiles. The axis shows
    the others with their intervals; its ends are None where there is no outlier.

    Args:
        means: of the rows (m,).
        intervals: ends of their intervals, NaN where there is none (m, e).

    >>> find_range(np.array([0.0] * 9 + [-50.0]), np.array([[-1.0, 1.0]] * 9 + [[-60.0, -40.0]]))
    (-1.1, None)
    """
    if len(means) < FEW:
        return None, None
    first, third = np.quantile(means, (0.25, 0.75))
    reach = 3 * max(float(third - first), 1.0)
    inside = (means >= first - reach) & (means <= third + reach)
    shown = np.concatenate([means[inside, None], intervals[inside]], axis=1)
    low, high = float(np.nanmin(shown)), float(np.nanmax(shown))
    margin = 0.05 * (high - low)
    return (
        low - margin if (means < first - reach).any() else None,
        high + margin if (means > third + reach).any() else None,
    )


def _point_outside(means: Floats, low: float | None, high: float | None) -> list[Mark]:
    """Write the means that lie outside of the axis at its ends, with an arrow."""
    marks: list[Mark] = []
    for place, mean in enumerate(means.tolist()):
        if low is not None and mean < low:
            marks.append(Words([low], [place], [f"◂ {difference_text(mean)}"], "start", GREY))
        elif high is not None and mean > high:
            marks.append(Words([high], [place], [f"{difference_text(mean)} ▸"], "end", GREY))
    return marks


def describe_differences(arrays: Differences) -> Chart:
    """Describe means with a line for each interval; grey where they are not significant."""
    looks = assign_looks(arrays.algorithms.tolist())
    marks: list[Mark] = []
    for place, (label, key, mean) in enumerate(zip(arrays.methods, arrays.algorithms.tolist(), arrays.difference)):
        own, new = ((float(ends[place, 0]), float(ends[place, 1])) for ends in (arrays.interval, arrays.new_interval))
        where = [
            f"{interval_text(ends)} {what}" for ends, what in ((own, THESE), (new, NEW)) if np.isfinite(ends).all()
        ]
        text = (
            f"{label}: {' '.join([difference_text(mean), 'points', ', '.join(where)]).strip()}, {arrays.results[place]}"
        )
        colour = to_ink(looks[key].colour) if arrays.significant[place] else GREY
        for ends, y, width in ((new, place + BELOW, 1), (own, place, 2)):
            if np.isfinite(ends).all():
                marks.append(Line("", [*ends], [y, y], colour, width=width, text=text))
        marks.append(Points("", [float(mean)], [place], colour, looks[key].marker, [text]))
    rows = list_names([str(label) for label in arrays.methods], flipped=True)
    zero = Line("", [0, 0], [-0.5, len(arrays.methods) - 0.5], GREY, dashed=True, width=1)
    low, high = find_range(arrays.difference, np.concatenate([arrays.interval, arrays.new_interval], axis=1))
    marks += _point_outside(arrays.difference, low, high)
    x = Axis("Difference (percentage points)", low=low, high=high)
    parts = (
        f"Mean difference over test domains with {COVERAGE} t intervals {THESE} and, thin and below, {NEW}.",
        "" if arrays.significant.all() else "Grey: not significant (Wilcoxon, Holm), or not tested.",
        arrays.about,
    )
    caption = " ".join(filter(None, parts)).strip()
    title = ", ".join(filter(None, (f"Differences from {arrays.baseline}", arrays.where)))
    return Chart(title, caption, [Panel("", x, rows, [zero, *marks])])
