"""What figures claim, and the numbers that decide it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import spearmanr

from fgmix.analysis.arrays import Rows
from fgmix.analysis.claims import area_ratios, claims, path_ends, rho_interval
from plots import made


def test_the_ratio_of_areas_is_that_of_the_mean_curves() -> None:
    arrays = made.flatness()
    (found,) = area_ratios(arrays)
    erm, fgmix = (trapezoid(gaps.mean(0), arrays.gammas) for gaps in arrays.gaps)
    assert found.value == pytest.approx(fgmix / erm)  # 2 over the mean of 1, 2, 3 and 4
    assert (found.method, found.other) == ("FGMix", "ERM")
    assert 0.5 <= found.low < 0.8 < found.high <= 2  # the extremes: all resampled directions of ERM alike


def test_directions_are_paired() -> None:
    """Curves that are proportional in every direction have a ratio without uncertainty."""
    arrays = made.flatness()
    (found,) = area_ratios(replace(arrays, gaps=np.stack([arrays.gaps[0], 0.5 * arrays.gaps[0]])))
    assert (found.low, found.value, found.high) == pytest.approx((0.5, 0.5, 0.5))


def test_a_minimum_without_any_difference_has_no_ratio() -> None:
    arrays = made.flatness(scale=0.0)
    assert np.isnan(area_ratios(arrays)[0].value)


def test_ends_of_paths_are_measured_from_the_nearest_highest_accuracy() -> None:
    arrays = made.surface()  # accuracy 90 − (u − 1)² − v²: the highest on the grid is at (1, 0)
    erm, fgmix = path_ends(arrays)
    assert (erm.method, erm.distance, erm.accuracy) == ("ERM + SWA", pytest.approx(1.0), pytest.approx(89.0))
    assert (fgmix.method, fgmix.distance, fgmix.accuracy) == ("FGMix + SWA", pytest.approx(1.0), pytest.approx(89.0))
    flat = replace(arrays, values=np.ones_like(arrays.values))
    assert path_ends(flat)[0].distance == pytest.approx(0.0)  # (2, 0) is a point of the grid


def test_the_interval_of_rho_covers_the_truth() -> None:
    rng = np.random.default_rng(0)
    truth = 6 / np.pi * np.arcsin(0.5 / 2)  # Spearman's ρ of a normal pair with correlation 0.5
    covered = 0
    for _ in range(200):
        x = rng.normal(size=60)
        y = 0.5 * x + np.sqrt(0.75) * rng.normal(size=60)
        low, high = rho_interval(float(spearmanr(x, y).statistic), 60)
        covered += low <= truth <= high
    assert 0.9 <= covered / 200 <= 0.99


def test_sentences_say_what_decides() -> None:
    claim, flat = claims(made.flatness())
    assert claim.startswith("Claim: the minimum of a method is flatter than that of ERM: the ratio of the areas")
    assert flat.startswith("Test domain sketch: FGMix 0.80 [")
    claim, path = claims(made.surface())
    assert claim == "Claim: FGMix + SWA ends closer to the highest test accuracy on the plane than ERM + SWA."
    assert path == "Test domain sketch: it does not; distance 1 (89.0 %) against 1 (89.0 %), highest 90.0 %."
    assert "it does in 3 of 6 pairs of domains; d0 → d1 0.35 [" in claims(made.scores())[1]
    assert claims(made.shift()) == []
    assert len(claims(Rows((made.flatness(), made.flatness())))) == 3  # the claim once
