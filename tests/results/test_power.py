"""Detectable differences: by simulation, against the normal limit, and in the words of a plan."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fgmix.results.power import describe_power, detectable_difference


@pytest.mark.parametrize("alpha", [0.05, 0.05 / 20])
def test_the_detectable_difference_is_found_as_often_as_it_says(alpha: float) -> None:
    delta = detectable_difference(0.8, 12, alpha)
    d = np.random.default_rng(1).normal(delta, 0.8, (4000, 12))
    assert np.mean(stats.ttest_1samp(d, 0.0, axis=1).pvalue <= alpha) == pytest.approx(0.8, abs=0.015)


def test_the_numbers_of_the_replication() -> None:
    """Spreads of FGMix − ERM on PACS, of its last five evaluations and where validation selects."""
    assert detectable_difference(2.05, 12) == pytest.approx(1.8, abs=0.05)
    assert detectable_difference(2.05, 12, 0.05 / 20) == pytest.approx(2.9, abs=0.05)
    assert detectable_difference(3.99, 12) == pytest.approx(3.5, abs=0.05)


def test_many_pairs_are_the_normal_limit() -> None:
    expected = (stats.norm.isf(0.025) + stats.norm.ppf(0.8)) / np.sqrt(10_000)
    assert detectable_difference(1.0, 10_000) == pytest.approx(expected, rel=1e-3)


def test_two_pairs_detect_little_and_one_nothing() -> None:
    assert (detectable_difference(1.0, 2) or 0) > 10
    assert detectable_difference(1.0, 2, 0.05 / 46) is not None  # far in the tail
    assert detectable_difference(None, 1) is None
    assert describe_power(1, 1, 1, 2.0) == "1 trial × 1 test domain detect about no points; 10 trials 2.0"
    assert describe_power(12, 4, 1, 2.0) == "12 trials × 4 test domains detect about 0.8 points"
