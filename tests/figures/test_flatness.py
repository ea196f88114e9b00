"""Flatness: what is drawn, and the ratio that decides its claim."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import trapezoid

from copying import replace
from fgmix.figures.description import Band
from fgmix.figures.flatness import decide, divide_areas
from fgmix.figures.kinds import describe, state_claims
from figures import made
from figures.marks import lines, words


def test_every_direction_and_the_mean_are_drawn() -> None:
    arrays = made.flatness()
    chart = describe(arrays)
    assert [panel.title for panel in chart.panels[:2]] == ["ERM (original)", "FGMix (original + mixed)"]
    assert [len(lines(chart, panel)) for panel in range(3)] == [5, 5, 2]  # four directions and their mean; both means
    np.testing.assert_allclose(lines(chart)[-1].y, arrays.gaps[0].mean(0))
    assert [mark.name for mark in lines(chart, 2)] == ["ERM", "FGMix"]
    bands = [mark for mark in chart.panels[2].marks if isinstance(mark, Band)]
    np.testing.assert_allclose(bands[0].top, arrays.gaps[0].mean(0) + arrays.gaps[0].std(0, ddof=1) / 2)
    assert len({(panel.y.low, panel.y.high) for panel in chart.panels[:-1]}) == 1
    assert (chart.panels[-1].y.high or 0) < (chart.panels[0].y.high or 0)  # the means have an axis of their own
    assert [text for _, text in chart.panels[0].x.ticks or ()] == ["2", "4", "6", "8", "10"]
    assert words(chart, 2) == [str(ratio) for ratio in decide(arrays)]


def test_an_outlier_does_not_flatten_the_others() -> None:
    arrays = made.flatness()
    three = replace(
        arrays,
        methods=np.array(["ERM", "FGMix", "wild"]),
        algorithms=np.array(["erm", "fgmix", "wild"]),
        data=np.array(["original"] * 3),
        gaps=np.concatenate([arrays.gaps, 1000 * arrays.gaps[:1]]),
    )
    chart = describe(three)
    assert 4 < (chart.panels[0].y.high or 0) < 20


def test_the_ratio_of_areas_is_that_of_the_mean_curves() -> None:
    arrays = made.flatness()
    (ratio,) = decide(arrays)
    erm, fgmix = (trapezoid(gaps.mean(0), arrays.gammas) for gaps in arrays.gaps)
    assert ratio.value == pytest.approx(fgmix / erm)  # 2 over the mean of 1, 2, 3 and 4
    assert ratio.method == "FGMix"
    assert 0.5 <= ratio.low < 0.8 < ratio.high <= 2  # the extremes: all resampled directions of ERM alike


def test_directions_are_paired() -> None:
    """Curves that are proportional in every direction have a ratio without uncertainty."""
    arrays = made.flatness()
    (ratio,) = decide(replace(arrays, gaps=np.stack([arrays.gaps[0], 0.5 * arrays.gaps[0]])))
    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((0.5, 0.5, 0.5))
    assert ratio.verdict == "flatter"
    (ratio,) = decide(replace(arrays, gaps=np.stack([arrays.gaps[0], 2 * arrays.gaps[0]])))
    assert ratio.verdict == "sharper"


def test_a_minimum_without_any_difference_has_no_ratio() -> None:
    arrays = made.flatness(scale=0.0)
    assert np.isnan(decide(arrays)[0].value)


def test_the_claim_names_the_ratio() -> None:
    claim, decided = state_claims(made.flatness())
    assert "ERM" in claim
    assert decided.startswith("Test domain sketch: FGMix: no difference (0.80 [")


def test_the_verdict_is_relative_to_the_margin_and_both_are_drawn() -> None:
    """By γ the second is sharper, relative to the margin it is flatter."""
    gaps = made.flatness().gaps[:1]
    noises = np.arange(0.1, 1.05, 0.1)
    arrays = replace(
        made.flatness(),
        gaps=np.concatenate([gaps, 3 * gaps]),
        noises=noises,
        relative_gaps=np.concatenate([gaps, 0.5 * gaps]),
    )
    (ratio,), (paper,) = decide(arrays), divide_areas(arrays.methods, arrays.gammas, arrays.gaps)
    assert (ratio.verdict, ratio.value) == ("flatter", pytest.approx(0.5))
    assert (paper.verdict, paper.value) == ("sharper", pytest.approx(3))
    claim, decided = state_claims(arrays)
    assert "scale of the codes" in claim
    assert "FGMix: flatter (0.50" in decided
    chart = describe(arrays)
    assert (len(chart.panels), chart.columns) == (4, 4)
    assert (words(chart, 2), words(chart, 3)) == ([str(paper)], [str(ratio)])
    assert list(lines(chart, 3)[0].x) == list(noises)


def test_arrays_without_the_relative_measure_have_a_caveat() -> None:
    assert "scale of the codes" in state_claims(made.flatness())[0]
    assert "scale of the codes" not in state_claims(replace(made.flatness(), scope="network"))[0]
