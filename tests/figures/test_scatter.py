"""Accuracy on the line: which runs are points, and the correlation that decides its claim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from copying import replace
from fgmix.figures.arrays import Findings
from fgmix.figures.description import Line
from fgmix.figures.kinds import describe, state_claims
from fgmix.figures.scatter import (
    Agreement,
    Budget,
    Mixing,
    bound_rho,
    collect_agreements,
    collect_budgets,
    collect_mixing,
    correlate_domains,
)
from fgmix.mixing.effect import METRICS
from fgmix.records.evaluations import Evaluation
from fgmix.records.metrics import metrics
from fgmix.records.rows import Row
from fgmix.records.schema import RunRecord
from fgmix.results.costs import Costs
from fgmix.results.read import read_runs
from fgmix.results.report import Choices
from fgmix.results.runs import Runs
from fgmix.results.selection import select
from figures import made
from figures.marks import lines, points
from results.made import finished, run, sweep


def collect_all(records: list[RunRecord]) -> list[Agreement]:
    return [arrays for _, arrays in collect_agreements(Findings(Runs(records), select(records), Choices()))]


def test_every_run_is_a_point_at_its_selected_step() -> None:
    late = {10: {"a": (0.4, 0.4), "b": (None, 0.7)}, 20: {"a": (0.9, 0.9), "b": (None, 0.6)}}
    records = [
        run("a", late),
        *(finished("a", 0.5, domains="a b", draw=draw, validation=0.8, algorithm="coral") for draw in range(1, 5)),
        finished("b", 0.5, domains="a b"),  # a single run: no panel
    ]
    (found,) = collect_all(records)
    assert found.domains.tolist() == ["a"]
    assert found.methods.tolist() == ["ERM", "CORAL"]
    np.testing.assert_allclose(found.validation, [70, 80, 80, 80, 80])
    np.testing.assert_allclose(found.accuracy, [40, 50, 50, 50, 50])
    assert not collect_all(records[-1:])


def test_runs_that_hold_out_pairs_are_left_out() -> None:
    alone = [finished("a", 0.1 * i, draw=i) for i in range(5)]
    pairs = [run("a b", {20: {"a": (0.9, 0.9), "b": (0.9, 0.9), "c": (None, 0.5)}}, draw=i) for i in range(5)]
    (found,) = collect_all([*alone, *pairs])
    assert found.domains.tolist() == ["a"]
    assert len(found.accuracy) == 5


def test_runs_with_several_test_domains_have_a_point_in_each_panel() -> None:
    read = read_runs(Path(__file__).parents[2] / "docs" / "records" / "rotated-digits.records.xz")
    (found,) = collect_all(list(read.records))
    assert found.domains.tolist() == ["10°", "30°", "50°", "60°", "70°", "80°"]
    assert np.bincount(found.domain).tolist() == [168] * 6


def test_correlations_are_spearmans() -> None:
    arrays = made.agreement()
    (first, n), (second, _) = correlate_domains(arrays)
    own = arrays.domain == 0
    assert first == pytest.approx(spearmanr(arrays.validation[own], arrays.accuracy[own]).statistic)
    assert n == 6
    assert np.isnan(second)  # all accuracies are equal
    _, decided, undecided = state_claims(arrays)
    assert decided.startswith(f"Test domain art: ρ = {first:.2f} [")
    assert "not defined" in undecided


def test_a_panel_for_each_domain_with_its_correlation() -> None:
    arrays = made.agreement()
    chart = describe(arrays)
    assert chart.panels[0].title.startswith(f"art, ρ = {correlate_domains(arrays)[0][0]:.2f} [")
    assert [mark.name for mark in points(chart)] == ["ERM", "CORAL"]
    assert sum(len(mark.x) for mark in points(chart)) == 6
    (equal,) = lines(chart)
    assert list(equal.x) == list(equal.y) == [40, 60]
    assert not any(isinstance(mark, Line) for mark in chart.panels[1].marks)  # no run is as good on the test domain


def test_many_runs_are_thinned_and_many_methods_have_one_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("scatter", "description"):
        monkeypatch.setattr(f"fgmix.figures.{module}.MOST", 3)
    monkeypatch.setattr("fgmix.figures.scatter.MANY", 1)
    chart = describe(made.agreement())
    (mark,) = points(chart)
    assert list(mark.x) == [40, 50, 65]
    assert "3 runs per panel are drawn" in chart.caption


def collect_mixed(records: list[RunRecord]) -> list[Mixing]:
    return [arrays for _, arrays in collect_mixing(Findings(Runs(records), select(records), Choices()))]


def mixed(*metrics: dict[str, float], algorithm: str = "fgmix", arm: str = "") -> RunRecord:
    """A run with these metrics at its evaluations."""
    run = finished("a", 0.5, algorithm=algorithm, arm=arm)
    scores = run.evaluations[0].accuracy
    return replace(run, evaluations=tuple(Evaluation(10 * i, scores, {}, m) for i, m in enumerate(metrics)))


def test_each_run_is_a_point_with_the_means_of_its_last_steps() -> None:
    """Steps that mix nothing count as 0: half of those before the last evaluation of the second run."""
    start = {"extrapolated": 0.0, "mixed": 0.0, "mixed_loss": 0.0, "mixed_margin": 0.0}
    full = {"extrapolated": 0.2, "mixed": 32.0, "mixed_loss": 0.8, "mixed_margin": 2.0}
    half = {name: value / 2 for name, value in full.items()}
    records = [mixed(start, full), mixed(full, half, arm="γ = 10"), mixed(start, start), finished("a", 0.5)]
    (found,) = collect_mixed(records)
    assert found.methods.tolist() == ["FGMix", "FGMix (γ = 10)"]
    assert found.algorithms.tolist() == ["fgmix", "fgmix (γ = 10)"]
    assert found.share.tolist() == pytest.approx([20, 20])
    assert found.metrics.tolist() == ["Loss of mixed codes", "Margin of mixed codes"]
    np.testing.assert_allclose(found.values, [[0.8, 0.8], [2.0, 2.0]])
    assert not collect_mixed([finished("a", 0.5)])


def test_the_names_are_those_that_runs_record() -> None:
    assert {"mixed_loss", "mixed_margin"} <= {*METRICS}


def test_older_records_have_a_panel_of_what_they_recorded() -> None:
    read = read_runs(Path(__file__).parents[2] / "docs" / "records" / "pacs.records.xz")
    (found,) = collect_mixed(list(read.records))
    assert found.metrics.tolist() == ["L_flat"]
    assert len(found.share) == 120  # ten arms that mix, three trials, four domains
    assert np.isfinite(found.values).sum() == 72  # of six arms with a learned policy


def test_a_panel_for_each_metric_without_what_was_not_recorded() -> None:
    chart = describe(made.mixing())
    loss, flat = chart.panels
    assert (loss.title, flat.title) == ("Loss of mixed codes", "L_flat")
    assert [(mark.name, list(mark.x), list(mark.y)) for mark in points(chart)] == [
        ("FGMix-A", [0], [0.5]),
        ("FGMix", [20, 50], [0.4, 0.1]),
    ]
    assert [mark.name for mark in points(chart, 1)] == ["FGMix"]


def test_a_metric_of_many_magnitudes_is_shown_as_its_logarithm() -> None:
    arrays = made.mixing()
    arrays.values[1] = [np.nan, 0.01, 10]
    loss, flat = describe(arrays).panels
    assert (loss.title, flat.title) == ("Loss of mixed codes", "log₁₀ L_flat")
    assert list(points(describe(arrays), 1)[0].y) == [-2, 1]


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


@pytest.mark.parametrize("pairs", [2, 4])
def test_a_panel_for_each_pair_on_the_same_axes(pairs: int) -> None:
    chart = describe(made.scores(pairs))
    assert len(chart.panels) == pairs
    assert chart.panels[0].title == "d0 → d1, ρ = 0.35 [-0.12, 0.69]"
    assert chart.title.endswith("test domain sketch")
    assert len({(panel.x, panel.y) for panel in chart.panels}) == 1
    assert chart.panels[-1].x.label == "Cosine of gradients"
    assert len(points(chart)[0].x) == 20


def test_the_interval_of_rho_covers_the_truth() -> None:
    rng = np.random.default_rng(0)
    truth = 6 / np.pi * np.arcsin(0.5 / 2)  # Spearman's ρ of a normal pair with correlation 0.5
    covered = 0
    for _ in range(200):
        x = rng.normal(size=60)
        y = 0.5 * x + np.sqrt(0.75) * rng.normal(size=60)
        low, high = bound_rho(float(spearmanr(x, y).statistic), 60)
        covered += low <= truth <= high
    assert 0.9 <= covered / 200 <= 0.99


def test_the_claim_counts_the_pairs() -> None:
    assert "it does in 3 of 6 pairs of domains; d0 → d1 0.35 [" in state_claims(made.scores())[1]
