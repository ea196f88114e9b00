"""Mixed codes: which metrics of which runs are drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from copying import replace
from fgmix.figures.arrays import Findings
from fgmix.figures.kinds import describe
from fgmix.figures.mixing import Mixing, collect_mixing
from fgmix.mixing.effect import METRICS
from fgmix.records.evaluations import Evaluation
from fgmix.records.schema import RunRecord
from fgmix.results.read import read_runs
from fgmix.results.report import Choices
from fgmix.results.runs import Runs
from fgmix.results.selection import select
from figures import made
from figures.marks import points
from results.made import finished


def collect_all(records: list[RunRecord]) -> list[Mixing]:
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
    (found,) = collect_all(records)
    assert found.methods.tolist() == ["FGMix", "FGMix (γ = 10)"]
    assert found.algorithms.tolist() == ["fgmix", "fgmix (γ = 10)"]
    assert found.share.tolist() == pytest.approx([20, 20])
    assert found.metrics.tolist() == ["Loss of mixed codes", "Margin of mixed codes"]
    np.testing.assert_allclose(found.values, [[0.8, 0.8], [2.0, 2.0]])
    assert not collect_all([finished("a", 0.5)])


def test_the_names_are_those_that_runs_record() -> None:
    assert {"mixed_loss", "mixed_margin"} <= {*METRICS}


def test_older_records_have_a_panel_of_what_they_recorded() -> None:
    read = read_runs(Path(__file__).parents[2] / "docs" / "records" / "pacs.records.xz")
    (found,) = collect_all(list(read.records))
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
