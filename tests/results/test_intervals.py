"""Intervals of a mean difference and detectable differences, against definitions, scipy and simulations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fgmix.results.intervals import MeanDifference, describe_power, detectable_difference

DOMAINS, TRIALS = 4, 3


def simulate(rng: np.random.Generator, between: float) -> MeanDifference:
    """A study of four domains and three trials; the mean difference over all domains is 1."""
    centres = rng.normal(1.0, between, DOMAINS)
    return MeanDifference({t: rng.normal(centre, 0.8, TRIALS) for t, centre in enumerate(centres)})


def test_one_domain_is_students_interval() -> None:
    d = np.array([0.3, -0.2, 1.1, 0.4])
    found = MeanDifference({"photo": d})
    test = stats.ttest_1samp(d, 0.0)
    assert found.interval(0.1) == pytest.approx(test.confidence_interval(0.9))
    assert found.interval_for_new() is None


def test_unequal_trials_by_hand() -> None:
    found = MeanDifference({"a": np.array([1.0, 2.0, 3.0]), "b": np.array([5.0, 7.0])})
    s2 = (2.0 + 2.0) / 3
    assert (found.mean, found.freedom) == (4.0, 3)
    assert found.error == pytest.approx(np.sqrt(s2 * (1 / 3 + 1 / 2)) / 2)
    half = stats.t.isf(0.025, 1) * np.std([2.0, 6.0], ddof=1) / np.sqrt(2)
    assert found.interval_for_new() == pytest.approx((4 - half, 4 + half))


def test_a_single_trial_says_nothing_about_other_trials() -> None:
    found = MeanDifference({"a": np.array([1.0]), "b": np.array([2.0])})
    assert (found.interval(), found.test_equivalence(9.0)) == (None, None)
    assert found.interval_for_new() is not None


def test_equal_differences() -> None:
    same = MeanDifference({"a": np.zeros(3), "b": np.zeros(3)})
    assert same.interval() == (0.0, 0.0)
    assert same.test_equivalence(0.1) == 0.0
    assert MeanDifference({"a": np.ones(3)}).test_equivalence(0.5) == 1.0


def test_both_intervals_cover_what_they_say() -> None:
    """95 % of 2,000 studies, ± 1 % (two standard errors of a simulation)."""
    rng = np.random.default_rng(0)
    fixed, new = [], []
    for _ in range(2000):
        centres = rng.normal(1.0, 1.5, DOMAINS)
        study = MeanDifference({t: rng.normal(centre, 0.8, TRIALS) for t, centre in enumerate(centres)})
        low, high = study.interval() or (np.nan, np.nan)
        fixed.append(low <= centres.mean() <= high)
        low, high = study.interval_for_new() or (np.nan, np.nan)
        new.append(low <= 1.0 <= high)
    assert np.mean(fixed) == pytest.approx(0.95, abs=0.011)
    assert np.mean(new) == pytest.approx(0.95, abs=0.011)


def test_spreads_that_differ_six_fold_between_domains_cost_three_percent_of_coverage() -> None:
    """The pooled variance stays unbiased where all domains have as many trials; its degrees of freedom are fewer."""
    rng = np.random.default_rng(3)
    covered = []
    for _ in range(2000):
        study = MeanDifference(
            {t: rng.normal(t, deviation, TRIALS) for t, deviation in enumerate((0.2, 0.4, 0.8, 1.2))}
        )
        low, high = study.interval() or (np.nan, np.nan)
        covered.append(low <= 1.5 <= high)
    assert np.mean(covered) == pytest.approx(0.92, abs=0.011)


def test_equivalence_is_the_narrower_interval_within_the_margin() -> None:
    study = simulate(np.random.default_rng(2), 0.1)
    widest = max(map(abs, study.interval(0.1) or (np.nan,)))
    assert study.test_equivalence(widest) == pytest.approx(0.05)
    assert (study.test_equivalence(widest + 0.1) or 1) < 0.05 < (study.test_equivalence(widest - 0.1) or 0)


def test_a_difference_of_the_margin_is_called_equivalent_in_one_of_twenty_studies() -> None:
    rng = np.random.default_rng(4)
    studies = (MeanDifference(dict(enumerate(d))) for d in rng.normal(0.5, 0.2, (2000, DOMAINS, TRIALS)))
    assert np.mean([(study.test_equivalence(0.5) or 0) <= 0.05 for study in studies]) == pytest.approx(0.05, abs=0.011)


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
