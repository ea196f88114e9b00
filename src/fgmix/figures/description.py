"""The description of a figure: panels of points, lines, bands, words and cells, with their axes, colours and captions.

`fgmix.figures.draw` draws it with matplotlib, `report/assets/charts.js` on the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fgmix.figures.arrays import Bools, Floats
from fgmix.results.rounding import typeset

MOST = 1000  # points of one kind in a panel
FAR = 3.0  # interquartile ranges beyond the quartiles from which on a number is far from the others
INK = "ink"  # the text's colour: black on paper, light on a dark screen
Numbers = Sequence[float] | npt.NDArray[Any]


@dataclass(frozen=True)
class Axis:
    """An axis."""

    label: str = ""  # what it measures, and the unit
    # Positions and their texts; None lets the renderer choose, an empty tuple draws none
    ticks: tuple[tuple[float, str], ...] | None = None
    low: float | None = None  # where it starts; None for the lowest mark
    high: float | None = None  # where it ends; None for the highest mark
    flipped: bool = False  # in reverse order


@dataclass(frozen=True)
class Points:
    """Points of one kind."""

    name: str  # for the legend, which shows and hides them; empty for none
    x: Numbers
    y: Numbers
    colour: str  # of the points; "ink" is that of the text
    marker: str = "o"  # as in `fgmix.figures.looks`
    text: Sequence[str] = ()  # what hovering over each shows
    # Points with the same key, in any panel, are highlighted together; in a chart with pictures, it is the number of
    # the point's picture. −1 for none.
    key: Numbers = ()
    faint: bool = False  # drawn pale, in the background
    outlined: bool = False  # with a dark outline, to be visible on a heat map


@dataclass(frozen=True)
class Line:
    """A line through points."""

    name: str  # for the legend; empty for none
    x: Numbers  # coordinates; a NaN interrupts the line
    y: Numbers
    colour: str  # of the line; "ink" is that of the text
    dashed: bool = False
    width: float = 1.5  # in pixels
    text: str = ""  # what hovering over it shows


@dataclass(frozen=True)
class Band:
    """The area between two curves, such as a spread around a mean."""

    name: str  # of the legend's entry that it belongs to; empty for none
    x: Numbers
    y: Numbers  # the lower curve
    top: Numbers  # the upper curve
    colour: str  # of the area, which is pale


@dataclass(frozen=True)
class Words:
    """Text at given points."""

    x: Numbers
    y: Numbers
    text: Sequence[str]  # of each point
    anchor: str = "middle"  # which part of the text is at the point: "start", "middle" or "end"
    colour: str = INK


@dataclass(frozen=True)
class Cells:
    """A heat map."""

    x: Numbers  # centres of the columns
    y: Numbers  # centres of the rows
    value: Sequence[Sequence[float]] | npt.NDArray[Any]  # (rows, columns); NaN leaves a cell empty
    text: Sequence[Sequence[str]]  # what hovering shows, row by row
    low: float  # value of the first colour
    high: float  # value of the last colour
    power: float = 1.0  # colours change with ((v − low) / (high − low)) to this power
    written: Sequence[Sequence[str]] = ()  # text in each cell, in one line or several; empty for none
    label: str = ""  # of the scale
    # The colour map: "cividis" for accuracies and distances, "magma" for losses, "Blues" for counts
    colours: str = "cividis"
    contours: bool = False  # filled contours on paper, for values of a continuous function


Mark = Points | Line | Band | Words | Cells


@dataclass(frozen=True)
class Panel:
    """One pair of axes with its marks, later ones on top."""

    title: str
    x: Axis
    y: Axis
    marks: Sequence[Mark]
    equal: bool = False  # a unit has the same length on both axes, because distances matter


@dataclass(frozen=True)
class Pictures:
    """Small pictures in one image, row by row."""

    source: str  # the image as a data URL
    side: int  # of a picture, in pixels
    columns: int  # pictures in a row


@dataclass(frozen=True)
class Chart:
    """A figure."""

    title: str  # a few words
    caption: str  # one paragraph per line; paper shows the first, the page all of them
    panels: Sequence[Panel]  # side by side where there is room
    columns: int = 0  # panels in a row on paper and on a wide screen; 0 for as many as fit
    pictures: Pictures | None = None  # shown when hovering over points, by their keys
    id: str = ""  # for links to it
    command: str = ""  # the command that draws it on paper; empty for none


def encode(thing: Any) -> Any:
    """Encode a chart (or a part of it) in JSON types: numbers with five digits, null for those that are not finite.

    >>> encode(Axis("γ", low=1 / 3))
    {'kind': 'Axis', 'label': 'γ', 'ticks': None, 'low': 0.33333, 'high': None, 'flipped': False}
    """
    if isinstance(thing, float | np.floating):  # first: most values are numbers
        return float(f"{thing:.5g}") if math.isfinite(thing) else None
    if isinstance(thing, str):
        return typeset(thing)
    if isinstance(thing, bool | int | None):
        return thing
    if isinstance(thing, np.ndarray):
        return encode(thing.tolist())
    if isinstance(thing, Iterable):
        return [encode(each) for each in thing]
    return {"kind": type(thing).__name__} | {field.name: encode(getattr(thing, field.name)) for field in fields(thing)}


# Parts that several kinds share


def connect_points(
    name: str, x: Any, y: Any, colour: str, marker: str, dashed: bool = False, width: float = 1.5
) -> list[Line | Points]:
    """Describe a line whose points show their values when hovered over."""
    texts = [f"{name}: {b:.4g} at {a:g}" for a, b in zip(x, y)]
    return [Line(name, x, y, colour, dashed, width), Points(name, x, y, colour, marker, texts)]


def map_matrix(
    value: Floats, text: Sequence[Sequence[str]], low: float, high: float, written: Sequence[Sequence[str]], **how: Any
) -> Cells:
    """Describe a heat map of a matrix, one cell for each entry."""
    rows, columns = value.shape
    return Cells(range(columns), range(rows), value, text, low, max(high, low + 1e-6), written=written, **how)


def thin(places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Keep at most `MOST` of the places of points, evenly spaced: a page contains all that are drawn."""
    return places if len(places) <= MOST else places[np.linspace(0, len(places) - 1, MOST).astype(int)]


def list_names(names: Sequence[str], label: str = "", *, flipped: bool = False) -> Axis:
    """Describe an axis of names."""
    return Axis(label, tuple((float(i), name) for i, name in enumerate(names)), -0.5, len(names) - 0.5, flipped)


def are_close(values: Floats) -> Bools:
    """Tell which values are within three interquartile ranges, of at least 1 each, of the quartiles."""
    first, third = np.nanquantile(values, (0.25, 0.75))
    reach = FAR * max(float(third - first), 1.0)
    close: Bools = (values >= first - reach) & (values <= third + reach)
    return close


def point_outside(x: Axis, place: float, value: float, text: str, colour: str) -> list[Mark]:
    """Write a value that is outside of an axis at its end, with an arrow; nothing for others."""
    if x.low is not None and value < x.low:
        return [Words([x.low], [place], [f"← {text}"], "start", colour)]
    if x.high is not None and value > x.high:
        return [Words([x.high], [place], [f"{text} →"], "end", colour)]
    return []


def title_rows(kind: str, rows: Sequence[Any]) -> str:
    """Write the title of a figure with a row for each test domain."""
    return f"{kind}, test domain{'s' if len(rows) > 1 else ''} {', '.join(str(row.test_domains) for row in rows)}"


def lay_out_rows(rows: Sequence[Any], describe: Callable[[Any], list[Panel]]) -> list[Panel]:
    """Describe the panels of each test domain, which the titles name if there are several."""
    panels = [(row, panel) for row in rows for panel in describe(row)]
    named = len(rows) > 1
    return [replace(each, title=f"{row.test_domains}: {each.title}") if named else each for row, each in panels]
