"""Tables as figures: accuracy by test domain, sensitivity to two settings, and the time of a training step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fgmix.figures.arrays import Bools, Findings, Floats, Texts
from fgmix.figures.description import (
    Axis,
    Chart,
    Line,
    Mark,
    Panel,
    Points,
    Words,
    are_close,
    list_names,
    map_matrix,
    point_outside,
)
from fgmix.figures.looks import list_looks
from fgmix.results.paper_rows import PAPER, add_paper_rows, describe_missing
from fgmix.results.published import sensitivity
from fgmix.results.rounding import DASH, accuracy_text
from fgmix.results.statistics import BASELINE
from fgmix.results.studies import PAPER_DATASET, grid_tables
from fgmix.results.tables import SPREADS, Table, dataset_table, drop_empty

PAPER_SPREAD = "The paper's ± is a standard deviation over five trials, or a standard error where it cites others."
MANY = 12  # rows from which on panels stand in one line


@dataclass(frozen=True, eq=False)
class Numbers:
    """A table of numbers."""

    title: str  # a few words
    corner: str  # what the rows are
    rows: Texts  # labels (r,)
    algorithms: Texts  # key of the algorithm of each row (r,)
    published: Bools  # whether a row is the paper's (r,)
    columns: Texts  # labels (c,)
    value: Floats  # (r, c); NaN for none
    spread: Floats  # the number after ± (r, c); NaN for none
    about: str = ""  # sentences for the caption: what ± is, what the paper lacks

    @classmethod
    def from_table(cls, table: Table, about: str = "") -> Self:
        """Convert a table of runs."""
        return cls(
            title=table.title,
            corner=table.corner,
            rows=np.array([table.label(row) for row in table.rows], dtype=np.str_),
            algorithms=np.array([row.row.anywhere.key for row in table.rows], dtype=np.str_),
            published=np.array([bool(row.source) for row in table.rows], dtype=np.bool_),
            columns=np.array(table.columns, dtype=np.str_),
            # None becomes NaN
            value=np.array([[entry.value for entry in row.entries] for row in table.rows], dtype=np.float64),
            spread=np.array([[entry.spread for entry in row.entries] for row in table.rows], dtype=np.float64),
            about=about,
        )


def format_accuracy(value: float, spread: float = np.nan) -> str:
    """Format an accuracy and its ±, if it has one; a dash for NaN."""
    return DASH if np.isnan(value) else accuracy_text(value, None if np.isnan(spread) else spread)


# Accuracy of every method and arm, by test domain


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
    unit, rows = "Points" if arrays.relative else "Accuracy (%)", list_names(arrays.rows.tolist(), flipped=True)
    axes = [Axis(unit, low=float(low), high=float(high)) for low, high in align_spans(arrays.value, arrays.spread)]
    panels = [
        Panel(column, x, rows, _describe_column(arrays, c, x))
        for c, (column, x) in enumerate(zip(arrays.columns.tolist(), axes))
    ]
    outside = any(isinstance(mark, Words) for panel in panels for mark in panel.marks)
    caption = [
        arrays.about,
        "All axes span the same number of percentage points.",
        "Arrows: numbers far outside of the axis." if outside else "",
        "Points from ERM without averaging; pale: the paper's, from its own ERM." if arrays.published.any() else "",
    ]
    columns = 3 if len(arrays.rows) <= MANY else 6  # many rows are long: all panels side by side
    what = "Difference from ERM" if arrays.relative else "Accuracy"
    title = f"{what} by test domain: {arrays.title}"
    return Chart(title, " ".join(filter(None, caption)), panels, columns=min(columns, len(panels)))


def _describe_column(arrays: Domains, column: int, x: Axis) -> list[Mark]:
    marks: list[Mark] = []
    for place, (label, look) in enumerate(zip(arrays.rows, list_looks(arrays.algorithms))):
        value, spread = float(arrays.value[place, column]), float(arrays.spread[place, column])
        if outside := point_outside(x, place, value, accuracy_text(value), look.ink):
            marks += outside
            continue
        text = f"{label}, {arrays.columns[column]}: {format_accuracy(value, spread)}"
        if np.isfinite(spread):
            marks.append(Line("", [value - spread, value + spread], [place, place], look.ink, width=2, text=text))
        marks.append(Points("", [value], [place], look.ink, look.marker, [text], faint=bool(arrays.published[place])))
    return marks


def align_spans(value: Floats, spread: Floats) -> Floats:
    """Compute a range for each column of numbers with their ± (c, 2), all of one length: differences can be compared.

    Numbers far from the others do not stretch it.

    >>> align_spans(np.array([[50.0, 60.0], [54.0, 61.0]]), np.zeros((2, 2))).tolist()
    [[49.6, 54.4], [58.1, 62.9]]
    """
    ends = []
    for column, reach in zip(value.T, np.nan_to_num(spread).T):
        close = are_close(column)
        ends.append((np.min((column - reach)[close]), np.max((column + reach)[close])))
    low, high = np.array(ends).T
    half = 0.6 * max(1.0, float((high - low).max()))
    middle = (low + high) / 2
    if np.nanmin(value) >= 0:  # accuracies, not differences
        middle = np.clip(middle, min(half, 50), max(100 - half, 50))
    return np.stack([middle - half, middle + half], 1)


# Accuracy by two settings


class Sensitivity(Numbers):
    """Accuracy by two settings."""


def collect_sensitivities(findings: Findings) -> Iterator[tuple[str, Sensitivity]]:
    """Collect a heat map for each grid of settings, dataset and algorithm."""
    for grid in findings.runs.grids:
        for table in grid_tables(grid, rule=findings.choices.rule, spread=findings.choices.spread):
            yield table.title, Sensitivity.from_table(table)


def read_paper_sensitivity() -> Sensitivity:
    """Read the paper's accuracies by λ₀ and α."""
    accuracies = {(lam, alpha): value for (_, lam, alpha), value in sensitivity().items()}
    lams, alphas = sorted({lam for lam, _ in accuracies}), sorted({alpha for _, alpha in accuracies})
    value = np.array([[accuracies[lam, alpha] for alpha in alphas] for lam in lams])
    return Sensitivity(
        title=f"{PAPER_DATASET}: FGMix by λ₀ and α ({PAPER})",
        corner="λ₀",
        rows=np.array([f"{lam:g}" for lam in lams]),
        algorithms=np.full(len(lams), "fgmix"),
        published=np.full(len(lams), True),
        columns=np.array([f"α = {alpha:g}" for alpha in alphas]),
        value=value,
        spread=np.full_like(value, np.nan),
    )


def describe_sensitivity(arrays: Sensitivity) -> Chart:
    """Describe a heat map with a cell for each combination."""
    name, _, _ = str(arrays.columns[0]).partition(" = ")  # the name in "α = 0.1" is the label of the axis
    heads = [str(column).removeprefix(f"{name} = ") for column in arrays.columns]
    text = [
        [
            f"{arrays.corner} = {row}, {column}: {format_accuracy(v, s)}"
            for column, v, s in zip(arrays.columns, *numbers)
        ]
        for row, *numbers in zip(arrays.rows, arrays.value, arrays.spread)
    ]
    written = [list(map(format_accuracy, row)) for row in arrays.value]
    low, high = float(np.nanmin(arrays.value)), float(np.nanmax(arrays.value))
    cells = map_matrix(arrays.value, text, low, high, written)
    x, y = list_names(heads, name), list_names(arrays.rows.tolist(), arrays.corner, flipped=True)
    return Chart(arrays.title, "Accuracy (%) on the test domains.", [Panel("", x, y, [cells])])
