"""Curves: from a record, and what is drawn of them."""

from __future__ import annotations

import numpy as np
import pytest

from copying import replace
from fgmix.figures.curves import collect_curves
from fgmix.figures.kinds import describe
from fgmix.training.open_run import OpenedRun
from figures import made
from figures.marks import lines
from results.made import sweep


def test_curves_hold_what_was_recorded(mixing: OpenedRun) -> None:
    record = mixing.record
    curves = collect_curves(record)
    assert curves.title == "FGMix, test domain 2"
    assert curves.steps.tolist() == [10, 20, 30]
    assert curves.accuracy.shape == curves.loss.shape == (2, 3, 3)
    at = record.evaluations[1]
    assert curves.accuracy[1, 2, 1] == 100 * at.accuracy["swa"]["2"]["holdout"]
    assert curves.loss[0, 0, 1] == at.loss["raw"]["0"]["holdout"]
    assert curves.metric_values[curves.metrics.tolist().index("λ"), 1] == at.metrics["lam"]


def test_nothing_of_mixing_is_shown_before_it_starts() -> None:
    """Ten steps do not mix, of the next ten two do, then all: metrics are means over the steps of each ten."""
    record = sweep({"fgmix": [[0.5, 0.5, 0.5]]})[0]
    (at,) = record.evaluations
    measured = [{"loss": 1.0, "lam": 3.0, "mixed": share * 8, "flat": share * 0.5} for share in (0.0, 0.2, 1.0)]
    evaluations = tuple(replace(at, step=10 * i, metrics=each) for i, each in enumerate(measured, start=1))
    curves = collect_curves(replace(record, evaluations=evaluations))
    values = dict(zip(curves.metrics.tolist(), curves.metric_values.tolist()))
    assert values["Training loss"] == [1.0, 1.0, 1.0]
    assert values["λ"] == pytest.approx([np.nan, 3.0, 3.0], nan_ok=True)
    assert values["L_flat"] == pytest.approx([np.nan, 0.5, 0.5], nan_ok=True)


def test_algorithms_may_have_other_metrics_in_each_phase() -> None:
    """As L2A-OT and DDG do: a metric has no value where it was not measured."""
    record = sweep({"l2a_ot": [[0.5, 0.5, 0.5]]})[0]
    (at,) = record.evaluations
    phases = [{"loss": 1.0, "cycle": 2.0}, {"loss": 0.5, "domain": 3.0}]
    evaluations = tuple(replace(at, step=10 * i, metrics=each) for i, each in enumerate(phases, start=1))
    curves = collect_curves(replace(record, evaluations=evaluations))
    values = dict(zip(curves.metrics.tolist(), curves.metric_values.tolist()))
    assert values["Training loss"] == [1.0, 0.5]
    assert values["Cycle"] == pytest.approx([2.0, np.nan], nan_ok=True)
    assert values["Domain"] == pytest.approx([np.nan, 3.0], nan_ok=True)


def test_a_panel_for_each_metric() -> None:
    arrays = made.curves()
    arrays.metric_values[arrays.metrics == "λ", 0] = np.nan  # before mixing starts
    chart = describe(arrays)
    assert [panel.title for panel in chart.panels] == ["Holdout accuracy", "Holdout loss", *arrays.metrics.tolist()]
    assert [len(lines(chart, i)) for i in range(len(chart.panels))] == [6, 6, *[1] * len(arrays.metrics)]
    assert "sketch (test), SWA" in [line.name for line in lines(chart)]
    assert "begins where mixing does" in chart.caption
    assert len(describe(made.curves(mixes=False)).panels) == 3


def test_the_caption_speaks_of_averages_where_there_are_some() -> None:
    arrays = made.curves()
    assert "averaged" in describe(arrays).caption
    raw = replace(arrays, models=arrays.models[:1], accuracy=arrays.accuracy[:1], loss=arrays.loss[:1])
    assert "averaged" not in describe(raw).caption
