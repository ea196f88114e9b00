"""Figures beside a model's card: what they show is what they were given."""

from __future__ import annotations

import pytest

from fgmix.plots.confusion import confusion
from fgmix.plots.reliability import reliability


def test_confusion_shows_every_count_and_name() -> None:
    figure = confusion(["cat", "a name that is far too long"], {"all": [[3, 1], [0, 7]], "worst: $x": [[1, 0], [0, 2]]})
    first, second = figure.axes
    assert [text.get_text() for text in first.texts] == ["3", "1", "0", "7"]
    assert [label.get_text() for label in first.get_xticklabels()] == ["cat", "a name that is fa…"]
    assert second.get_title() == r"worst: \$x"
    assert first.images[0].get_array().tolist() == [[0.75, 0.25], [0.0, 1.0]]


def test_many_classes_have_neither_numbers_nor_names() -> None:
    matrix = [[int(i == j) for j in range(41)] for i in range(41)]
    (ax,) = confusion([str(i) for i in range(41)], {"all": matrix}).axes
    assert not ax.texts
    assert len(ax.get_xticks()) < 41


def test_reliability_shows_the_bins() -> None:
    above, below = reliability([(0.3, 0.2, 0.4), (0.9, 0.95, 0.6)]).axes
    assert above.lines[1].get_xydata().tolist() == [[0.3, 0.2], [0.9, 0.95]]
    assert [bar.get_height() for bar in below.patches] == pytest.approx([0.4, 0.6])
