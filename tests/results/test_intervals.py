"""Intervals of a mean difference against their definitions, scipy and simulations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fgmix.results.intervals import MeanDifference, detectable_difference

DOMAINS, TRIALS = 4, 3


def simulate(rng: np.random.Generator, between: float) -> MeanDifference:
    """A study of four domains and three trials; the mean difference over all domains is 1."""
    centres = rng.normal(1.0, between, DOMAINS)
    return MeanDifference({t: rng.normal(centre, 0.8, TRIALS) for t, centre in enumerate(centres)})


def test_one_domain_is_students_interval() -> None:
    d = np.array([0.3, -0.2, 1.1, 0.4])
    found = MeanDifference({"photo": d})
    test = stats.ttest_1samp(d, 0.0)
    assert found.p_value() == pytest.approx(test.pvalue)
    assert found.interval(0.1) == pytest.approx(test.confidence_interval(0.9))
    assert found.interval_for_new_domains() is None


def test_unequal_trials_by_hand() -> None:
    found = MeanDifference({"a": np.array([1.0, 2.0, 3.0]), "b": np.array([5.0, 7.0])})
    s2 = (2.0 + 2.0) / 3
    assert (found.mean, found.freedom) == (4.0, 3)
    assert found.error == pytest.approx(np.sqrt(s2 * (1 / 3 + 1 / 2)) / 2)
    half = stats.t.isf(0.025, 1) * np.std([2.0, 6.0], ddof=1) / np.sqrt(2)
    assert found.interval_for_new_domains() == pytest.approx((4 - half, 4 + half))


def test_a_single_trial_says_nothing_about_other_trials() -> None:
    found = MeanDifference({"a": np.array([1.0]), "b": np.array([2.0])})
    assert (found.interval(), found.p_value(), found.detectable(), found.is_within(9.0)) == (None, None, None, False)
    assert found.interval_for_new_domains() is not None


def test_equal_differences() -> None:
    same = MeanDifference({"a": np.zeros(3), "b": np.zeros(3)})
    assert (same.p_value(), same.interval()) == (1.0, (0.0, 0.0))
    assert MeanDifference({"a": np.ones(3)}).p_value() == 0.0
    assert same.is_within(0.1)


def test_both_intervals_cover_what_they_say() -> None:
    """95 % of 2,000 studies, ± 1 % (two standard errors of a simulation)."""
    rng = np.random.default_rng(0)
    fixed, new = [], []
    for _ in range(2000):
        centres = rng.normal(1.0, 1.5, DOMAINS)
        study = MeanDifference({t: rng.normal(centre, 0.8, TRIALS) for t, centre in enumerate(centres)})
        low, high = study.interval() or (np.nan, np.nan)
        fixed.append(low <= centres.mean() <= high)
        low, high = study.interval_for_new_domains() or (np.nan, np.nan)
        new.append(low <= 1.0 <= high)
    assert np.mean(fixed) == pytest.approx(0.95, abs=0.011)
    assert np.mean(new) == pytest.approx(0.95, abs=0.011)


def test_the_detectable_difference_is_found_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    delta = detectable_difference(0.8 / np.sqrt(TRIALS * DOMAINS), DOMAINS * (TRIALS - 1))
    d = rng.normal(delta, 0.8, (2000, DOMAINS, TRIALS))
    found = [(MeanDifference(dict(enumerate(study))).p_value() or 0) <= 0.05 for study in d]
    assert np.mean(found) == pytest.approx(0.8, abs=0.02)


def test_equivalence_is_the_narrower_interval_within_the_margin() -> None:
    rng = np.random.default_rng(2)
    study = simulate(rng, 0.1)
    low, high = study.interval(0.1) or (np.nan, np.nan)
    widest = max(abs(low), abs(high))
    assert study.is_within(widest + 1e-9)
    assert not study.is_within(widest - 1e-9)
