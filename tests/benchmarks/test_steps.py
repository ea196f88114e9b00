"""Times of steps become ratios to ERM's, whatever the machine does meanwhile."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from algorithms.toys import linear_algorithm, toy_batches
from benchmarks.steps import PAPER, SWA, _summarise, choose_step, measure_steps, write_costs
from fgmix import algorithms
from fgmix.records.files import read_json
from fgmix.records.rows import Row
from fgmix.results.published import step_milliseconds
from fgmix.results.read import read_runs
from fgmix.results.report import tabulate
from fgmix.training.averaging import RunningMean

SMALL: dict[str, Any] = {"backbone": "small_cnn", "image_size": 8, "batch_size": 2, "rounds": 3}


def test_a_step_is_compared_with_erms_before_and_after_it() -> None:
    """A machine that gets slower by the step: over ERM's step before it alone, the second round would read 3."""
    cost = _summarise("method", [(1.0, 2.0), (2.0, 6.0), (4.0, 0.0)])
    ratios = [2.0 / 1.5, 6.0 / 3.0]
    assert cost.ratio == pytest.approx(sum(ratios) / 2)
    assert cost.milliseconds == 4000.0


def test_ratio_is_the_median_of_rounds() -> None:
    cost = _summarise("method", [(1.0, 1.1), (1.0, 1.2), (1.0, 9.0), (1.0, 0.0)])
    assert cost.ratio == pytest.approx(1.2)


def test_costs_are_measured_and_reported(tmp_path: Path) -> None:
    costs = list(measure_steps(["erm", "coral", "coral + swa"], **SMALL))
    assert all(cost.low <= cost.ratio <= cost.high and cost.milliseconds > 0 for cost in costs)
    write_costs(costs, SMALL, tmp_path)
    rows = [line.split(" | ") for line in tabulate(read_runs(tmp_path)).to_text().splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows[2:]] == ["| ERM", "| CORAL", "| CORAL + SWA"]
    assert rows[3][3:] == ["305.8", "1.07 |"]  # the paper's
    ((name, time),) = read_json(tmp_path / "cost.json")["averaged_milliseconds"]
    assert name == "coral"
    assert time > 0


def test_cpu_time_is_the_processs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.process_time", count(step=0.5).__next__)
    (cost,) = measure_steps(["erm"], **SMALL, cpu_time=True)
    assert (cost.ratio, cost.milliseconds) == (1.0, 500.0)


def test_the_papers_rows_are_timed() -> None:
    assert {name.removesuffix(SWA) for name in PAPER} <= set(algorithms.names())
    rows = [Row(name.removesuffix(SWA), model="swa" if name.endswith(SWA) else "raw") for name in PAPER]
    assert len(rows) == 20
    assert set(rows) == set(step_milliseconds())


def test_an_averaged_step_trains_and_averages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The average after three steps is the mean of the weights after each."""
    made: list[RunningMean] = []

    class Noted(RunningMean):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self)

    monkeypatch.setattr("benchmarks.steps.RunningMean", Noted)
    method = linear_algorithm("erm").train()
    step, seen = choose_step("erm + swa", method), list[torch.Tensor]()
    for _ in range(3):
        step(toy_batches(shape=(5,), classes=3))
        seen.append(method.classifier.weight.detach().clone())
    assert torch.allclose(made[0].average()["classifier.weight"], torch.stack(seen).mean(0))
    assert not torch.equal(seen[0], seen[2])
    assert choose_step("erm", method) == method.step
    assert len(made) == 1
