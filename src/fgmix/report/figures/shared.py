"""Parts that several figures share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fgmix.analysis.arrays import Floats
from fgmix.report.charts import Axis, Cells, Line, Mark, Points
from fgmix.results.rounding import DASH, accuracy_text

INK = "ink"  # the text's colour: black on paper, light on a dark screen


def with_points(
    name: str,
    x: Any,
    y: Any,
    colour: str,
    marker: str,
    dashed: bool = False,
    width: float = 1.5,
    *,
    legend: bool = True,
) -> list[Mark]:
    """A line whose points show their values when hovered over."""
    texts = [f"{name}: {b:.4g} at {a:g}" for a, b in zip(x, y)]
    shown = name if legend else ""
    return [Line(shown, x, y, colour, dashed, width), Points(shown, x, y, colour, marker, texts)]


def grid(
    value: Floats, text: Sequence[Sequence[str]], low: float, high: float, written: Sequence[Sequence[str]]
) -> Cells:
    """A heat map of a matrix."""
    rows, columns = value.shape
    return Cells(range(columns), range(rows), value, text, low, max(high, low + 1e-6), written=written)


def names_axis(names: Sequence[str], label: str = "", *, flipped: bool = False) -> Axis:
    """An axis of names."""
    return Axis(label, tuple((float(i), name) for i, name in enumerate(names)), -0.5, len(names) - 0.5, flipped)


def with_spread(value: float, spread: float) -> str:
    """An accuracy and its ±, if it has one; a dash for NaN."""
    return DASH if np.isnan(value) else accuracy_text(value, None if np.isnan(spread) else spread)


def ink(colour: str) -> str:
    """The colour, with black replaced by that of the text, which is visible on a dark screen."""
    return INK if colour == "#000000" else colour


def row_title(kind: str, rows: Sequence[Any]) -> str:
    """The title of a figure with a row for each test domain."""
    return f"{kind}, test domain{'s' if len(rows) > 1 else ''} {', '.join(str(row.test_domains) for row in rows)}"
