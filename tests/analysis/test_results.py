"""From records to arrays."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fgmix.analysis.results import (
    grid_sensitivities,
    method_ranks,
    paper_sensitivity,
    run_curves,
    step_cost,
    variant_ablation,
)
from fgmix.errors import UserError
from fgmix.results.costs import Costs
from fgmix.results.grids import Grid
from fgmix.results.ranks import rank_methods
from fgmix.results.selection import Method, select
from fgmix.training.open_run import OpenedRun
from results.made import sweep

TRIALS = {
    "erm": [[0.5, 0.6, 0.7], [0.52, 0.6, 0.7]],
    "fgmix_a": [[0.6, 0.7, 0.8], [0.6, 0.7, 0.8]],
    "fgmix": [[0.7, 0.8, 0.9], [0.7, 0.8, 0.9]],
}


def test_curves_hold_what_was_recorded(mixing: OpenedRun) -> None:
    record = mixing.record
    found = run_curves(record)
    assert found.title == "FGMix, test domain 2"
    assert found.steps.tolist() == [10, 20, 30]
    assert found.accuracy.shape == found.loss.shape == (2, 3, 3)
    at = record.evaluations[1]
    assert found.accuracy[1, 2, 1] == 100 * at.accuracy["swa"]["2"]["holdout"]
    assert found.loss[0, 0, 1] == at.loss["raw"]["0"]["holdout"]
    assert found.metric_values[found.metrics.tolist().index("λ"), 1] == at.metrics["lam"]


def test_nothing_of_mixing_is_shown_before_it_starts() -> None:
    """Ten steps do not mix, of the next ten two do, then all: metrics are means over the steps of each ten."""
    record = sweep({"fgmix": [[0.5, 0.5, 0.5]]})[0]
    (at,) = record.evaluations
    measured = [{"loss": 1.0, "lam": 3.0, "mixed": share * 8, "flat": share * 0.5} for share in (0.0, 0.2, 1.0)]
    evaluations = tuple(replace(at, step=10 * i, metrics=each) for i, each in enumerate(measured, start=1))
    found = run_curves(replace(record, evaluations=evaluations))
    values = dict(zip(found.metrics.tolist(), found.metric_values.tolist()))
    assert values["Training loss"] == [1.0, 1.0, 1.0]
    assert values["λ"] == pytest.approx([np.nan, 3.0, 3.0], nan_ok=True)
    assert values["L_flat"] == pytest.approx([np.nan, 0.5, 0.5], nan_ok=True)


def test_ablation_takes_the_variants_in_order() -> None:
    found = variant_ablation(select(sweep({**TRIALS, "coral": TRIALS["erm"]})), "toy")
    assert found.rows.tolist() == ["ERM", "FGMix-A", "FGMix"]
    assert found.algorithms.tolist() == ["erm", "fgmix_a", "fgmix"]
    assert found.columns.tolist() == ["a", "b", "c", "Avg"]
    np.testing.assert_allclose(found.value[0], [51, 60, 70, 181 / 3])
    np.testing.assert_allclose(found.spread[0, :3], [1 / np.sqrt(2), 0, 0], atol=1e-9)
    assert np.isnan(found.spread[0, 3])


def test_rows_of_the_paper_are_flagged() -> None:
    domains = "art_painting cartoon photo sketch"
    records = sweep({"erm": [[0.5] * 4], "fgmix": [[0.6] * 4]}, domains=domains, dataset="PACS")
    found = variant_ablation(select(records), "PACS", published=True)
    assert found.rows.tolist() == ["ERM", "ERM (paper)", "FGMix", "FGMix (paper)"]
    assert found.algorithms.tolist() == ["erm", "erm", "fgmix", "fgmix"]
    assert found.published.tolist() == [False, True, False, True]


def test_ablation_without_variants_is_said() -> None:
    with pytest.raises(UserError, match="variants"):
        variant_ablation(select(sweep({"coral": TRIALS["erm"]})), "toy")


def test_ranks_and_their_groups() -> None:
    selection = select(sweep(TRIALS))
    found = method_ranks(rank_methods(selection), selection.labels)
    assert found.methods.tolist() == ["FGMix", "FGMix-A", "ERM"]
    assert found.algorithms.tolist() == ["fgmix", "fgmix_a", "erm"]
    assert found.ranks.tolist() == [1, 2, 3]
    assert found.cliques.tolist() == [[0, 1], [1, 2]]  # CD = 1.35 over six pairs
    assert found.pairs == 6


def test_the_grid_of_a_sweep() -> None:
    records = [
        record
        for lam, shift in ((1.0, 0.0), (3.0, 0.1))
        for alpha in (0.1, 0.3)
        for record in sweep({"fgmix": [[0.5 + shift + alpha / 10] * 3]}, settings={"lam": lam, "alpha": alpha})
    ]
    (found,) = grid_sensitivities(Grid({"lam": (1.0, 3.0), "alpha": (0.1, 0.3)}, tuple(records)))
    assert (found.corner, found.rows.tolist()) == ("λ₀", ["1", "3"])
    assert found.columns.tolist() == ["α = 0.1", "α = 0.3"]
    np.testing.assert_allclose(found.value, [[51, 53], [61, 63]])


def test_the_papers_sensitivity() -> None:
    found = paper_sensitivity()
    assert found.value[found.rows.tolist().index("3"), found.columns.tolist().index("α = 0.1")] == 49.2
    assert found.value.shape == (4, 4)


def test_cost_is_over_erm() -> None:
    times = {Method("erm"): 20.0, Method("fgmix"): 25.0, Method("my_own"): 30.0}
    found = step_cost(Costs(times, {"erm": "ERM", "fgmix": "FGMix"}))
    assert found.rows.tolist() == ["ERM", "FGMix", "my_own"]
    assert found.value[:, 0].tolist() == [1, 1.25, 1.5]
    assert found.value[1, 1] == pytest.approx(1.098, abs=1e-3)
    assert np.isnan(found.value[2, 1])
    with pytest.raises(UserError, match="ERM"):
        step_cost(Costs({Method("fgmix"): 25.0}))


def test_no_torch_for_what_records_hold() -> None:
    code = "import sys, fgmix.analysis.results; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "False"
