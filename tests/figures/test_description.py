"""Descriptions as plain data."""

from __future__ import annotations

import numpy as np

from fgmix.figures.description import encode
from fgmix.figures.kinds import describe
from figures import made
from figures.marks import lines


def test_what_is_not_finite_is_null() -> None:
    assert encode([np.nan, np.inf, np.float64(1.0), np.array([[2, 3]])]) == [None, None, 1.0, [[2, 3]]]


def test_black_is_the_colour_of_the_text() -> None:
    assert lines(describe(made.flatness()))[-1].colour == "ink"
