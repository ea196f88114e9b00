"""Surfaces: scales, paths, and the distances that decide the claim."""

from __future__ import annotations

import numpy as np
import pytest

from copying import replace
from fgmix.figures.description import encode
from fgmix.figures.kinds import describe, state_claims
from fgmix.figures.surface import find_optimum, measure_ends
from figures import made
from figures.marks import cells, lines, points


def test_one_scale_for_losses_and_one_for_accuracy() -> None:
    arrays = made.surface()
    chart = describe(arrays)
    assert (cells(chart, 0).low, cells(chart, 0).high) == (cells(chart, 1).low, cells(chart, 1).high)
    assert cells(chart, 2).high == arrays.values[2].max()
    assert [mark.name for mark in lines(chart, 0) if mark.colour != "#ffffff"] == ["ERM", "ERM + SWA"]
    assert len(lines(chart, 2)) == 8  # all four paths, on white
    assert (cells(chart, 0).colours, cells(chart, 2).colours) == ("magma", "cividis")
    models = ["Initial model", "ERM + SWA model", "FGMix + SWA model"]
    assert [mark.name for mark in points(chart, 0) if mark.outlined] == models
    best = points(chart, 2)[-1]
    assert (best.name, best.x, best.y) == ("Highest test accuracy", [pytest.approx(1)], [pytest.approx(0)])
    assert points(chart, 0)[0].text[1] == "ERM, step 10"
    rising = describe(replace(arrays, values=0 * arrays.values + arrays.u))
    assert points(rising, 2)[-1].name == "Highest test accuracy, at the edge of the grid"


def test_a_loss_that_is_not_finite_leaves_its_cell_empty_and_a_flat_one_has_a_scale() -> None:
    arrays = made.surface()
    arrays.values[0, 0, 0] = np.nan
    mark = cells(describe(arrays))
    assert np.isfinite([mark.low, mark.high]).all()
    assert encode(mark)["value"][0][0] is None
    flat = cells(describe(replace(arrays, values=np.ones_like(arrays.values))))
    assert flat.high > flat.low


def test_ends_of_paths_are_measured_from_the_highest_accuracy_between_points_of_the_grid() -> None:
    arrays = made.surface()
    u, v = arrays.u, arrays.v
    moved = replace(arrays, values=np.stack([*arrays.values[:2], 90 - (u - 1.2) ** 2 - (v[:, None] - 0.1) ** 2]))
    np.testing.assert_allclose(moved.optimum, [1.2, 0.1])
    ends = measure_ends(moved)
    assert ends.distances == pytest.approx((np.hypot(0.8, 0.1), np.hypot(0.2, 0.9)))
    assert ends.accuracies == pytest.approx((90 - 0.64 - 0.01, 90 - 0.04 - 0.81))  # the ends are points of the grid
    assert ends.interval is None
    assert ends.resolution == pytest.approx(np.hypot(1, 1) / 2)
    assert ends.is_tie


def test_a_plateau_and_an_edge_have_no_fit() -> None:
    u, v = np.linspace(0, 6, 7), np.linspace(0, 4, 5)
    plateau = np.where((np.abs(u - 3) <= 1) & (np.abs(v[:, None] - 2) <= 2), 90.0, 80.0)
    np.testing.assert_allclose(find_optimum(u, v, plateau), [3, 2])  # its middle
    np.testing.assert_allclose(find_optimum(u, v, u + v[:, None]), [6, 4])
    np.testing.assert_allclose(find_optimum(u[:2], v[:2], np.array([[1.0, 2.0], [0.0, np.nan]])), [1, 0])


def test_a_difference_of_distances_is_judged_by_its_interval_and_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples that all agree leave no uncertainty; samples of two kinds, with optima at either end, leave a tie."""
    monkeypatch.setattr("fgmix.figures.surface.RESAMPLES", 100)
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
        measured = measure_ends(made_up)
        assert measured.interval is not None
        low, high = measured.interval
        assert low - 1e-9 <= measured.closer <= high + 1e-9
        verdicts.append(state_claims(made_up)[1].split(";")[0])
    assert verdicts == [f"Test domain sketch: {verdict}" for verdict in ("yes", "no", "a tie")]


def test_the_claim_names_the_distances() -> None:
    claim, decided = state_claims(made.surface())
    assert claim == "Claim: FGMix + SWA ends closer to the highest test accuracy on the plane than ERM + SWA."
    assert decided == (
        "Test domain sketch: a tie; distance 1 (89.0 %) against 1 (89.0 %), a difference of 0; the grid resolves 0.71. "
        "Highest accuracy on the grid: 90.0 %."
    )
