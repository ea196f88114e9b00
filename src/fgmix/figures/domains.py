"""Domains: accuracy of every method and arm, by test domain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fgmix.figures.arrays import Findings, Floats, Numbers
from fgmix.figures.description import Axis, Chart, Line, Mark, Panel, Points, Words, format_accuracy, list_names, to_ink
from fgmix.figures.looks import assign_looks
from fgmix.results.paper_rows import add_paper_rows, describe_missing
from fgmix.results.rounding import accuracy_text
from fgmix.results.statistics import BASELINE
from fgmix.results.tables import SPREADS, dataset_table, drop_empty

PAPER_SPREAD = "The paper's ± is a standard deviation over five trials, or a standard error where it cites others."
FAR = 3.0  # interquartile ranges beyond the quartiles from which on a number is far away
MANY = 12  # rows from which on panels stand in one line


@dataclass(frozen=True, eq=False)
class Domains(Numbers):
    """Accuracy of rows by test domain."""

    relative: bool = False  # whether the numbers are differences from ERM, of ours or of the paper


def collect_domains(findings: Findings) -> Iterator[tuple[str, Domains]]:
    """Collect the table of each dataset with two or more rows; with the paper's numbers if chosen.

    `about` then names the rows that the paper lacks.
    """
    spread, published = findings.choices.spread, findings.choices.published
    for dataset in findings.datasets:
        table = drop_empty(dataset_table(findings.selection, dataset, spread=spread))
        if len(table.rows) < 2:
            continue
        trials = max(entry.trials or 0 for row in table.rows for entry in row.entries)
        notes = [
            f"Lines: ± {SPREADS[spread]}, {trials} trials." if trials > 1 else "One trial, hence no ±.",
            describe_missing(table) if published else "",
        ]
        shown = add_paper_rows(table) if published else table
        arrays = Domains.from_table(shown, " ".join(filter(None, notes)))
        yield dataset, subtract_erm(arrays) if arrays.published.any() else arrays


def subtract_erm(arrays: Domains) -> Domains:
    """Subtract ERM's accuracies, of our runs from ours and of the paper's from the paper's.

    Levels differ by the size of images and networks, which would squeeze the differences of methods to nothing.
    """
    value = arrays.value.copy()
    for theirs in (False, True):
        own = arrays.published == theirs
        erm = np.flatnonzero(own & (arrays.algorithms == BASELINE))
        value[own] -= arrays.value[erm[0]] if len(erm) else np.nan
    about = f"{arrays.about} {PAPER_SPREAD}"
    return replace(arrays, value=value, about=about.strip(), relative=True)


def describe_domains(arrays: Domains) -> Chart:
    """Describe a panel for each column, a row for each method: a point with its ±, pale for the paper."""
    names = [str(label) for label in arrays.rows]
    spans = align_spans(arrays.value, arrays.spread)
    panels = [
        Panel(
            str(column),
            Axis("Points" if arrays.relative else "Accuracy (%)", low=float(low), high=float(high)),
            list_names(names, flipped=True),
            _describe_column(arrays, c, float(low), float(high)),
        )
        for c, (column, (low, high)) in enumerate(zip(arrays.columns, spans))
    ]
    paper = "Points from ERM without averaging; pale: the paper's, from its own ERM." if arrays.published.any() else ""
    far = "Arrows: numbers far outside of the axis." if any(_is_outside(arrays.value, spans)) else ""
    same = "All axes span the same number of percentage points."
    columns = 3 if len(names) <= MANY else 6  # many rows are long: all panels side by side
    caption = " ".join(filter(None, (arrays.about, same, far, paper)))
    what = "Difference from ERM" if arrays.relative else "Accuracy"
    return Chart(f"{what} by test domain: {arrays.title}", caption, panels, columns=min(columns, len(panels)))


def _describe_column(arrays: Domains, column: int, low: float, high: float) -> list[Mark]:
    marks: list[Mark] = []
    looks = assign_looks(arrays.algorithms.tolist())
    for place, label in enumerate(map(str, arrays.rows)):
        look = looks[str(arrays.algorithms[place])]
        value, spread = float(arrays.value[place, column]), float(arrays.spread[place, column])
        if value < low:
            marks.append(Words([low], [place], [f"← {accuracy_text(value)}"], "start", to_ink(look.colour)))
            continue
        if value > high:
            marks.append(Words([high], [place], [f"{accuracy_text(value)} →"], "end", to_ink(look.colour)))
            continue
        text = f"{label}, {arrays.columns[column]}: {format_accuracy(value, spread)}"
        if np.isfinite(spread):
            ends = [value - spread, value + spread]
            marks.append(Line("", ends, [place, place], to_ink(look.colour), width=2, text=text))
        faint = bool(arrays.published[place])
        marks.append(Points("", [value], [place], to_ink(look.colour), look.marker, [text], faint=faint))
    return marks


def _is_outside(value: Floats, spans: Floats) -> Iterator[bool]:
    return (bool(((column < low) | (column > high)).any()) for column, (low, high) in zip(value.T, spans))


def align_spans(value: Floats, spread: Floats) -> Floats:
    """Compute a range for each column of numbers with their ± (c, 2), all of one length: differences can be compared.

    Numbers far from the others do not stretch it: those beyond the quartiles by `FAR` times their distance.

    >>> align_spans(np.array([[50.0, 60.0], [54.0, 61.0]]), np.zeros((2, 2))).tolist()
    [[49.6, 54.4], [58.1, 62.9]]
    """
    ends = []
    for column, reach in zip(value.T, np.nan_to_num(spread).T):
        first, last = np.nanquantile(column, [0.25, 0.75])
        near = FAR * max(1.0, last - first)
        close = (column >= first - near) & (column <= last + near)
        ends.append((np.min((column - reach)[close]), np.max((column + reach)[close])))
    low, high = np.array(ends).T
    half = 0.6 * max(1.0, float((high - low).max()))
    middle = (low + high) / 2
    if np.nanmin(value) >= 0:  # accuracies, not differences
        middle = np.clip(middle, min(half, 50), max(100 - half, 50))
    return np.stack([middle - half, middle + half], 1)
