"""Times of steps become ratios to ERM's, whatever the machine does meanwhile."""

from __future__ import annotations

from itertools import count

import pytest

from fgmix.sweeps.step_times import _summarise, measure_steps


def test_a_step_is_compared_with_erms_before_and_after_it() -> None:
    """A machine that gets slower by the step: over ERM's step before it alone, the second round would read 3."""
    cost = _summarise("method", [(1.0, 2.0), (2.0, 6.0), (4.0, 0.0)])
    ratios = [2.0 / 1.5, 6.0 / 3.0]
    assert cost.ratio == pytest.approx(sum(ratios) / 2)
    assert cost.milliseconds == 4000.0


def test_ratio_is_the_median_of_rounds() -> None:
    cost = _summarise("method", [(1.0, 1.1), (1.0, 1.2), (1.0, 9.0), (1.0, 0.0)])
    assert cost.ratio == pytest.approx(1.2)


SMALL = {"backbone": "small_cnn", "image_size": 8, "batch_size": 2, "rounds": 3}


def test_every_name_gets_its_summarise() -> None:
    found = list(measure_steps(["erm", "erm + swa"], **SMALL))
    assert [cost.name for cost in found] == ["erm", "erm + swa"]
    assert all(cost.low <= cost.ratio <= cost.high and cost.milliseconds > 0 for cost in found)


def test_cpu_time_is_the_processs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.process_time", count(step=0.5).__next__)
    (cost,) = measure_steps(["erm"], **SMALL, cpu_time=True)
    assert (cost.ratio, cost.milliseconds) == (1.0, 500.0)
