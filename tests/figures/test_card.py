"""Figures of a card: confusion, and reliability."""

from __future__ import annotations

import numpy as np

from fgmix.figures.card import describe_confusion, describe_reliability
from figures.marks import cells, lines


def test_confusion_shows_every_count_and_name() -> None:
    classes = ["cat", "a name that is far too long"]
    chart = describe_confusion(classes, {"all": [[3, 1], [0, 7]], "worst: $x": [[1, 0], [0, 2]]})
    assert cells(chart).written == [["3", "1"], ["0", "7"]]
    assert [text for _, text in chart.panels[0].x.ticks or ()] == ["cat", "a name that is fa…"]
    assert chart.panels[1].title == "worst: $x"
    assert np.asarray(cells(chart).value).tolist() == [[0.75, 0.25], [0.0, 1.0]]


def test_many_classes_have_neither_numbers_nor_names() -> None:
    matrix = [[int(i == j) for j in range(41)] for i in range(41)]
    chart = describe_confusion([str(i) for i in range(41)], {"all": matrix})
    assert not cells(chart).written
    assert chart.panels[0].x.ticks is None


def test_reliability_shows_the_bins() -> None:
    chart = describe_reliability([(0.3, 0.2, 0.4), (0.9, 0.95, 0.6)])
    curve = lines(chart)[1]
    assert (list(curve.x), list(curve.y)) == ([0.3, 0.9], [0.2, 0.95])
    assert [bar.y[1] for bar in lines(chart, 1)] == [0.4, 0.6]
