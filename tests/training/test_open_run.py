"""Finished runs, opened again."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from fgmix.data import from_arrays
from fgmix.errors import UserError
from fgmix.records.evaluations import Model
from fgmix.records.store import RunFolder
from fgmix.training.evaluate import evaluation_mode
from fgmix.training.open_run import OpenedRun, open_run
from fgmix.training.prepare import build_algorithm
from training.finished import score_domain
from training.killed_run import toy_data


@pytest.mark.parametrize("model", ["raw", "swa"])
def test_the_best_weights_score_what_the_record_says(erm: OpenedRun, model: Model) -> None:
    algorithm = erm.algorithm("best", model)
    best = erm.record.selected(model)
    with evaluation_mode(algorithm):
        for domain in erm.prepared.dataset.domains:
            found = score_domain(algorithm, domain, erm.prepared.splits[domain.name].holdout)
            assert found.accuracy == best.accuracy[model][domain.name]["holdout"]


def test_a_lost_snapshot_is_missed(erm: OpenedRun, tmp_path: Path) -> None:
    folder = shutil.copytree(erm.folder, tmp_path / "run")
    RunFolder(folder).snapshot(10).unlink()
    run = open_run(folder, dataset=toy_data())
    with pytest.raises(UserError, match=r"0000010.*--snapshots 3"):
        list(run.path())


def test_snapshots_start_at_the_initial_weights(erm: OpenedRun) -> None:
    models: tuple[Model, ...] = ("raw", "swa")
    for model in models:
        assert [step for step, _ in erm.path(model)] == [0, 10, 20, 30]
    initial = build_algorithm(erm.prepared).state_dict()
    found = erm.initial().state_dict()
    assert torch.equal(found["classifier.weight"], initial["classifier.weight"])


def test_both_runs_start_from_the_same_weights(erm: OpenedRun, mixing: OpenedRun) -> None:
    first, second = erm.initial(), mixing.initial()
    for p, q in zip(first.featurizer.parameters(), second.featurizer.parameters()):
        assert torch.equal(p, q)


def test_a_sample_follows_the_split(erm: OpenedRun) -> None:
    sample = erm.sample(("1", "0"), "holdout", limit=5)
    assert sample.domain.tolist() == [1] * 5 + [0] * 5
    for name, indices in zip(("1", "0"), sample.indices):
        assert set(indices) <= set(erm.prepared.splits[name].holdout)
    assert len(erm.sample(erm.sources)) == sum(len(erm.prepared.splits[name].train) for name in ("0", "1"))
    codes = sample.codes(erm.algorithm())
    assert len(codes) == len(sample.y) == len(sample) == 10


def test_other_data_is_refused(erm: OpenedRun) -> None:
    other = toy_data().domains[0].inputs.x + 1  # type: ignore[attr-defined]
    y, domain = np.arange(60) % 3, np.arange(60) // 20
    with pytest.raises(UserError, match="was trained on"):
        open_run(erm.folder, dataset=from_arrays(other, y, domain))


def test_what_is_not_there_is_said(erm: OpenedRun, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Expected a finished run"):
        open_run(tmp_path)
    with pytest.raises(UserError, match=r"last_swad.*last_swa"):
        erm.algorithm("last", "swad")
