"""The marks of a description, by kind."""

from __future__ import annotations

from fgmix.figures.description import Cells, Chart, Line, Points, Words


def points(chart: Chart, panel: int = 0) -> list[Points]:
    return [mark for mark in chart.panels[panel].marks if isinstance(mark, Points)]


def lines(chart: Chart, panel: int = 0) -> list[Line]:
    return [mark for mark in chart.panels[panel].marks if isinstance(mark, Line)]


def words(chart: Chart, panel: int = 0) -> list[str]:
    return [text for mark in chart.panels[panel].marks if isinstance(mark, Words) for text in mark.text]


def cells(chart: Chart, panel: int = 0) -> Cells:
    (mark,) = (mark for mark in chart.panels[panel].marks if isinstance(mark, Cells))
    return mark
