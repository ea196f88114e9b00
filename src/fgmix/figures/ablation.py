"""Ablation: accuracy of the variants of FGMix, by test domain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fgmix.errors import UserError
from fgmix.figures.arrays import Floats, Numbers
from fgmix.figures.description import Axis, Chart, Line, Mark, Panel, Points, format_accuracy, list_names, to_ink
from fgmix.figures.looks import assign_looks
from fgmix.results.paper_rows import add_paper_rows, describe_missing
from fgmix.results.selection import Selection
from fgmix.results.tables import SPREADS, Spread, dataset_table

VARIANTS = ("erm", *(f"fgmix_{variant}" for variant in "abcdef"), "fgmix")


class Ablation(Numbers):
    """Accuracy of variants by test domain."""


def find_variants(selection: Selection, least: int = 1) -> list[tuple[str, str]]:
    """List the datasets and origins ("" for a single folder) that have at least `least` of `VARIANTS`."""
    variants: dict[tuple[str, str], set[str]] = {}
    for cell in selection.cells:
        variants.setdefault((cell.dataset, cell.row.origin), set()).update({cell.row.anywhere.key} & set(VARIANTS))
    return [place for place, names in variants.items() if len(names) >= least]


def collect_ablation(
    selection: Selection, dataset: str, *, origin: str = "", spread: Spread = "stderr", published: bool = False
) -> Ablation:
    """Collect the accuracies of ERM, the variants A to F and FGMix (raw models) by test domain.

    `origin` is one of several folders, "" for a single one. `published` adds the paper's numbers; `about` then names
    those that the paper lacks.
    """
    table = dataset_table(selection, dataset, spread=spread)
    here = [row for row in table.rows if row.row.origin == origin and row.row.model == "raw"]
    variants = [replace(row, row=row.row.anywhere) for row in here if row.row.anywhere.key in VARIANTS]
    rows = tuple(sorted(variants, key=lambda row: VARIANTS.index(row.row.key)))
    if not rows:
        raise UserError(
            f"Expected runs of the variants of FGMix on {dataset}. Found none. Run `fgmix sweep --preset "
            "paper-ablation`, or a sweep over fgmix_a … fgmix_f."
        )
    ours = replace(table, rows=rows, title=f"{table.title} ({origin})" if origin else table.title)
    trials = max((entry.trials or 0 for row in rows for entry in row.entries), default=0)
    notes = [
        f"Lines: ± {SPREADS[spread]}, {trials} trials." if trials > 1 else "One trial, hence no ±.",
        describe_missing(ours) if published else "",
    ]
    return Ablation.from_table(add_paper_rows(ours) if published else ours, " ".join(filter(None, notes)))


def describe_ablation(arrays: Ablation) -> Chart:
    """Describe a panel for each column, a row for each variant: a point with its ±, pale for the paper."""
    names = [str(label) for label in arrays.rows]
    panels = [
        Panel(
            str(column),
            Axis("Accuracy (%)", low=float(low), high=float(high)),
            list_names(names, flipped=True),
            _describe_column(arrays, c),
        )
        for c, (column, (low, high)) in enumerate(zip(arrays.columns, align_spans(arrays.value, arrays.spread)))
    ]
    paper = "Pale: the paper." if arrays.published.any() else ""
    caption = " ".join(filter(None, (arrays.about, "All axes span the same number of percentage points.", paper)))
    return Chart(f"Ablation: {arrays.title}", caption, panels, columns=min(3, len(panels)))


def _describe_column(arrays: Ablation, column: int) -> list[Mark]:
    marks: list[Mark] = []
    looks = assign_looks(arrays.algorithms.tolist())
    for place, label in enumerate(map(str, arrays.rows)):
        look = looks[str(arrays.algorithms[place])]
        value, spread = float(arrays.value[place, column]), float(arrays.spread[place, column])
        text = f"{label}, {arrays.columns[column]}: {format_accuracy(value, spread)}"
        if np.isfinite(spread):
            ends = [value - spread, value + spread]
            marks.append(Line("", ends, [place, place], to_ink(look.colour), width=2, text=text))
        faint = bool(arrays.published[place])
        marks.append(Points("", [value], [place], to_ink(look.colour), look.marker, [text], faint=faint))
    return marks


def align_spans(value: Floats, spread: Floats) -> Floats:
    """Compute a range for each column of numbers with their ± (c, 2), all of one length: differences can be compared.

    >>> align_spans(np.array([[50.0, 60.0], [54.0, 61.0]]), np.zeros((2, 2))).tolist()
    [[49.6, 54.4], [58.1, 62.9]]
    """
    ends = [
        (np.nanmin(column - reach), np.nanmax(column + reach)) if np.isfinite(column).any() else (0.0, 0.0)
        for column, reach in zip(value.T, np.nan_to_num(spread).T)
    ]
    low, high = np.array(ends).T
    half = 0.6 * max(1.0, float((high - low).max()))
    middle = (low + high) / 2
    return np.stack([middle - half, middle + half], 1)
