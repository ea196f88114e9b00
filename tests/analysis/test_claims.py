"""What figures claim, and the numbers that decide it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import spearmanr

from fgmix.analysis.arrays import Rows
from fgmix.analysis.claims import area_ratios, claims, optima, optimum, path_ends, rho_interval
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
    assert found.verdict == "flatter"
    (found,) = area_ratios(replace(arrays, gaps=np.stack([arrays.gaps[0], 2 * arrays.gaps[0]])))
    assert found.verdict == "sharper"


def test_a_minimum_without_any_difference_has_no_ratio() -> None:
    arrays = made.flatness(scale=0.0)
    assert np.isnan(area_ratios(arrays)[0].value)


def test_ends_of_paths_are_measured_from_the_highest_accuracy_between_points_of_the_grid() -> None:
    arrays = made.surface()
    u, v = arrays.u, arrays.v
    moved = replace(arrays, values=np.stack([*arrays.values[:2], 90 - (u - 1.2) ** 2 - (v[:, None] - 0.1) ** 2]))
    np.testing.assert_allclose(optimum(moved), [1.2, 0.1])
    found = path_ends(moved)
    assert found.distances == pytest.approx((np.hypot(0.8, 0.1), np.hypot(0.2, 0.9)))
    assert found.accuracies == pytest.approx((90 - 0.64 - 0.01, 90 - 0.04 - 0.81))  # the ends are points of the grid
    assert found.interval is None
    assert found.resolution == pytest.approx(np.hypot(1, 1) / 2)
    assert found.is_tie


def test_a_plateau_and_an_edge_have_no_fit() -> None:
    u, v = np.linspace(0, 6, 7), np.linspace(0, 4, 5)
    plateau = np.where((np.abs(u - 3) <= 1) & (np.abs(v[:, None] - 2) <= 2), 90.0, 80.0)
    np.testing.assert_allclose(optima(u, v, plateau[None])[0], [3, 2])  # its middle
    np.testing.assert_allclose(optima(u, v, (u + v[:, None])[None])[0], [6, 4])
    np.testing.assert_allclose(optima(u[:2], v[:2], np.array([[[1.0, 2.0], [0.0, np.nan]]]))[0], [1, 0])


def test_a_difference_of_distances_is_judged_by_its_interval_and_the_grid() -> None:
    """Samples that all agree leave no uncertainty; samples of two kinds, with optima at either end, leave a tie."""
    arrays = made.surface()
    u, v = np.linspace(-3, 3, 13), np.linspace(-3, 3, 13)
    radius = np.linspace(0.2, 3, 40)

    def around(x: float) -> np.ndarray:
        return ((u - x) ** 2 + v[:, None] ** 2)[..., None] < radius**2

    ends = np.array([[0.0, 3.0], [-2.0, 0.0], [2.0, 0.0]])
    verdicts = []
    for correct in (around(2.0), around(-2.0), np.concatenate([around(2.0), around(-2.0)], -1)):
        accuracy = 100 * correct.mean(-1)
        made_up = replace(
            arrays, u=u, v=v, anchor_points=ends, correct=correct, values=np.stack([accuracy, accuracy, accuracy])
        )
        found = path_ends(made_up)
        assert found.interval is not None
        low, high = found.interval
        assert low - 1e-9 <= found.closer <= high + 1e-9
        verdicts.append(claims(made_up)[1].split(";")[0])
    assert verdicts == [f"Test domain sketch: {verdict}" for verdict in ("yes", "no", "a tie")]


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
    assert flat.startswith("Test domain sketch: FGMix: no difference (0.80 [")
    claim, path = claims(made.surface())
    assert claim == "Claim: FGMix + SWA ends closer to the highest test accuracy on the plane than ERM + SWA."
    assert path == (
        "Test domain sketch: a tie; distance 1 (89.0 %) against 1 (89.0 %), closer by 0; the grid resolves 0.71. "
        "Highest accuracy on the grid: 90.0 %."
    )
    assert "it does in 3 of 6 pairs of domains; d0 → d1 0.35 [" in claims(made.scores())[1]
    assert claims(made.shift()) == []
    assert len(claims(Rows((made.flatness(), made.flatness())))) == 3  # the claim once
