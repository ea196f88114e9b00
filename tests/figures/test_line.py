"""Accuracy on the line: which runs are points, and the correlation that decides its claim."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from fgmix.figures.arrays import Findings
from fgmix.figures.description import Line
from fgmix.figures.kinds import describe, state_claims
from fgmix.figures.line import Agreement, collect_agreements, correlate
from fgmix.records.schema import RunRecord
from fgmix.results.read import read_runs
from fgmix.results.report import Choices
from fgmix.results.runs import Runs
from fgmix.results.selection import select
from figures import made
from figures.marks import lines, points
from results.made import finished, run


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
    (first, n), (second, _) = correlate(arrays)
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
    assert chart.panels[0].title.startswith(f"art, ρ = {correlate(arrays)[0][0]:.2f} [")
    assert [mark.name for mark in points(chart)] == ["ERM", "CORAL"]
    assert sum(len(mark.x) for mark in points(chart)) == 6
    (equal,) = lines(chart)
    assert list(equal.x) == list(equal.y) == [40, 60]
    assert not any(isinstance(mark, Line) for mark in chart.panels[1].marks)  # no run is as good on the test domain


def test_many_runs_are_thinned_and_many_methods_have_one_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("line", "description"):
        monkeypatch.setattr(f"fgmix.figures.{module}.MOST", 3)
    monkeypatch.setattr("fgmix.figures.line.MANY", 1)
    chart = describe(made.agreement())
    (mark,) = points(chart)
    assert list(mark.x) == [40, 50, 65]
    assert "3 runs per panel are drawn" in chart.caption
