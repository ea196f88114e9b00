"""The description of a figure: panels of points, lines, bands, words and cells, with their axes, colours and captions.

`fgmix.figures.draw` draws it with matplotlib, `report/assets/charts.js` on the page.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from fgmix.figures.arrays import Floats
from fgmix.results.rounding import DASH, accuracy_text

INK = "ink"  # the text's colour: black on paper, light on a dark screen
Numbers = Sequence[float] | npt.NDArray[Any]


@dataclass(frozen=True)
class Axis:
    """An axis.

    Args:
        label: what it measures, and the unit.
        ticks: positions and their texts; None lets the renderer choose, an empty tuple draws none.
        low: where it starts; None for the lowest mark.
        high: where it ends; None for the highest mark.
        flipped: in reverse order.
    """

    label: str = ""
    ticks: tuple[tuple[float, str], ...] | None = None
    low: float | None = None
    high: float | None = None
    flipped: bool = False


@dataclass(frozen=True)
class Points:
    """Points of one kind.

    Args:
        name: for the legend, which shows and hides them; empty for none.
        x: coordinates.
        y: coordinates.
        colour: of the points; "ink" is that of the text.
        marker: as in `fgmix.figures.looks`.
        text: what hovering over each shows.
        key: points with the same key, in any panel, are highlighted together; in a chart with pictures, the number of
            the point's picture. −1 for none.
        faint: drawn pale, in the background.
        outlined: with a dark outline, to be visible on a heat map.
    """

    name: str
    x: Numbers
    y: Numbers
    colour: str
    marker: str = "o"
    text: Sequence[str] = ()
    key: Numbers = ()
    faint: bool = False
    outlined: bool = False


@dataclass(frozen=True)
class Line:
    """A line through points.

    Args:
        name: for the legend; empty for none.
        x: coordinates; a NaN interrupts the line.
        y: coordinates.
        colour: of the line; "ink" is that of the text.
        dashed: whether it is dashed.
        width: in pixels.
        text: what hovering over it shows.
    """

    name: str
    x: Numbers
    y: Numbers
    colour: str
    dashed: bool = False
    width: float = 1.5
    text: str = ""


@dataclass(frozen=True)
class Band:
    """The area between two curves, such as a spread around a mean.

    Args:
        name: of the legend's entry that it belongs to; empty for none.
        x: coordinates.
        y: the lower curve.
        top: the upper curve.
        colour: of the area, which is pale.
    """

    name: str
    x: Numbers
    y: Numbers
    top: Numbers
    colour: str


@dataclass(frozen=True)
class Words:
    """Text at given points.

    Args:
        x: coordinates.
        y: coordinates.
        text: of each point.
        anchor: which part of the text is at the point: "start", "middle" or "end".
        colour: of the text.
    """

    x: Numbers
    y: Numbers
    text: Sequence[str]
    anchor: str = "middle"
    colour: str = INK


@dataclass(frozen=True)
class Cells:
    """A heat map.

    Args:
        x: centres of the columns.
        y: centres of the rows.
        value: (rows, columns); NaN leaves a cell empty.
        text: what hovering shows, row by row.
        low: value of the first colour.
        high: value of the last colour.
        power: colours change with ((v − low) / (high − low)) to this power.
        written: text in each cell, in one line or several; empty for none.
        label: of the scale.
        colours: the colour map: "cividis" for accuracies and distances, "magma" for losses, "Blues" for counts.
        contours: filled contours on paper, for values of a continuous function.
    """

    x: Numbers
    y: Numbers
    value: Sequence[Sequence[float]] | npt.NDArray[Any]
    text: Sequence[Sequence[str]]
    low: float
    high: float
    power: float = 1.0
    written: Sequence[Sequence[str]] = ()
    label: str = ""
    colours: str = "cividis"
    contours: bool = False


Mark = Points | Line | Band | Words | Cells


@dataclass(frozen=True)
class Panel:
    """One pair of axes with its marks, later ones on top."""

    title: str
    x: Axis
    y: Axis
    marks: Sequence[Mark]


@dataclass(frozen=True)
class Pictures:
    """Small pictures in one image, row by row.

    Args:
        source: the image as a data URL.
        side: of a picture, in pixels.
        columns: pictures in a row.
    """

    source: str
    side: int
    columns: int


@dataclass(frozen=True)
class Chart:
    """A figure.

    Args:
        title: a few words.
        caption: one paragraph per line; paper shows the first, the page all of them.
        panels: side by side where there is room.
        columns: panels in a row on paper and on a wide screen; 0 for as many as fit.
        pictures: shown when hovering over points, by their keys.
        id: for links to it.
        command: the command that draws it on paper; empty for none.
    """

    title: str
    caption: str
    panels: Sequence[Panel]
    columns: int = 0
    pictures: Pictures | None = None
    id: str = ""
    command: str = ""


def encode(thing: Any) -> Any:
    """Encode a chart (or a part of it) in JSON types: numbers with five digits, null for those that are not finite.

    >>> encode(Axis("γ", low=1 / 3))
    {'kind': 'Axis', 'label': 'γ', 'ticks': None, 'low': 0.33333, 'high': None, 'flipped': False}
    """
    if isinstance(thing, float | np.floating):  # first: most values are numbers
        return float(f"{thing:.5g}") if math.isfinite(thing) else None
    if isinstance(thing, str | bool | int | None):
        return thing
    if isinstance(thing, np.ndarray):
        return encode(thing.tolist())
    if isinstance(thing, Iterable):
        return [encode(each) for each in thing]
    return {"kind": type(thing).__name__} | {field.name: encode(getattr(thing, field.name)) for field in fields(thing)}


# Parts that several kinds share


def connect_points(
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
    """Describe a line whose points show their values when hovered over."""
    texts = [f"{name}: {b:.4g} at {a:g}" for a, b in zip(x, y)]
    shown = name if legend else ""
    return [Line(shown, x, y, colour, dashed, width), Points(shown, x, y, colour, marker, texts)]


def map_matrix(
    value: Floats, text: Sequence[Sequence[str]], low: float, high: float, written: Sequence[Sequence[str]], **how: Any
) -> Cells:
    """Describe a heat map of a matrix, one cell for each entry."""
    rows, columns = value.shape
    return Cells(range(columns), range(rows), value, text, low, max(high, low + 1e-6), written=written, **how)


def list_names(names: Sequence[str], label: str = "", *, flipped: bool = False) -> Axis:
    """Describe an axis of names."""
    return Axis(label, tuple((float(i), name) for i, name in enumerate(names)), -0.5, len(names) - 0.5, flipped)


def format_accuracy(value: float, spread: float) -> str:
    """Format an accuracy and its ±, if it has one; a dash for NaN."""
    return DASH if np.isnan(value) else accuracy_text(value, None if np.isnan(spread) else spread)


def to_ink(colour: str) -> str:
    """Replace black by the colour of the text, which is visible on a dark screen."""
    return INK if colour == "#000000" else colour


def title_rows(kind: str, rows: Sequence[Any]) -> str:
    """Write the title of a figure with a row for each test domain."""
    return f"{kind}, test domain{'s' if len(rows) > 1 else ''} {', '.join(str(row.test_domains) for row in rows)}"
