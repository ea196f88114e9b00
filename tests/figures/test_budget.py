"""Accuracy against compute: what a run costs, and what is drawn of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from copying import replace
from fgmix.figures.arrays import Findings
from fgmix.figures.budget import Budget, collect_budgets
from fgmix.figures.kinds import describe
from fgmix.records.metrics import metrics
from fgmix.records.rows import Row
from fgmix.records.schema import RunRecord
from fgmix.results.costs import Costs
from fgmix.results.report import Choices
from fgmix.results.runs import Runs
from fgmix.results.selection import select
from figures import made
from figures.marks import points
from results.made import sweep

ACCURACIES = {"erm": [[0.5, 0.6]], "fish": [[0.7, 0.8]], "mine": [[0.9, 0.9]]}
COSTS = {"erm": 1.0, "fish": 3.0}


def records(costs: dict[str, float], **keys: Any) -> list[RunRecord]:
    runs = sweep(ACCURACIES, domains="a b", batch_size=32, **keys)
    return [replace(run, cost=costs.get(run.spec.algorithm)) for run in runs]


def collect_one(runs: list[RunRecord], costs: Costs | None = None) -> Budget:
    ((_, found),) = collect_budgets(Findings(Runs(runs, costs=costs), select(runs), Choices()))
    return found


def test_compute_is_samples_times_the_recorded_cost() -> None:
    found = collect_one(records(COSTS))
    assert found.rows.tolist() == ["ERM", "fish"]  # the cost of a plug-in is unknown
    assert found.compute.tolist() == [20 * 32, 3 * 20 * 32]  # one source
    np.testing.assert_allclose(found.accuracy, [55, 75])
    assert np.isnan(found.calibration_error).all()
    assert len(describe(found).panels) == 1


def test_measured_times_stand_in_for_costs_of_older_records() -> None:
    found = collect_one(records({}), Costs({Row("erm"): 20.0, Row("mine"): 50.0}))
    assert found.rows.tolist() == ["ERM", "mine"]
    assert found.compute[1] / found.compute[0] == pytest.approx(2.5)
    runs = records({})
    assert not list(collect_budgets(Findings(Runs(runs), select(runs), Choices())))


def test_calibration_errors_are_averaged_over_domains() -> None:
    y = np.array([0, 1])
    sure = np.array([[0.9, 0.1], [0.9, 0.1]])  # 0.9 confident, half right
    unseen = metrics(y, sure.argmax(1), sure)
    runs = [replace(run, unseen={"raw": {run.spec.test_domains[0]: unseen}}) for run in records(COSTS)]
    found = collect_one(runs)
    np.testing.assert_allclose(found.calibration_error, [40, 40])


def test_a_point_for_each_row_in_both_panels() -> None:
    chart = describe(made.budget())
    accuracy, error = chart.panels
    assert (accuracy.title, error.title) == ("Average accuracy", "Expected calibration error")
    assert [(mark.name, list(mark.x), list(mark.y)) for mark in points(chart)] == [
        ("ERM", [640], [55]),
        ("Fish", [1920], [75]),
    ]
    assert [list(mark.y) for mark in points(chart, 1)] == [[10], [20]]
    assert [mark.faint for mark in points(chart)] == [False, True]  # averaged weights
    assert accuracy.x.low == 0
