"""Runs of methods that adapt at test time: trained as without it, adapted anew to every part of a domain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from copying import replace
from fgmix import DomainGeneralizer, fit
from fgmix.data import DomainDataset, from_arrays
from fgmix.deploy.soup import soup
from fgmix.errors import UserError
from fgmix.records.schema import RunRecord
from fgmix.seeding import numpy_generator
from fgmix.training.loop import train
from fgmix.training.open_run import open_run
from training.killed_run import Killed, kill_at, toy_data, toy_spec

SETTINGS = {"t3a": {"test_batch_size": 16}, "tent": {"test_batch_size": 16, "tent_alpha": 10.0}}


def signals() -> DomainDataset:
    """Short signals, whose network has normalisation layers."""
    rng = np.random.default_rng(0)
    y, domain = np.arange(90) % 3, np.arange(90) // 30
    return from_arrays(rng.normal(size=(90, 2, 16)) + y[:, None, None] + 0.5 * domain[:, None, None], y, domain)


def run(out: Path, algorithm: str, **options: Any) -> RunRecord:
    spec = replace(toy_spec(algorithm), steps=6, eval_every=3, averaging_start=2, checkpoint_every=1, **options)
    spec = replace(spec, settings=SETTINGS.get(algorithm, {}))
    return train(spec, out, dataset=signals(), device="cpu", progress=False)


@pytest.mark.parametrize("averaging", ["swa", "swad"])
@pytest.mark.parametrize("algorithm", ["t3a", "tent"])
def test_training_is_that_of_erm_and_every_part_is_adapted_to_anew(
    algorithm: str, averaging: str, tmp_path: Path
) -> None:
    ours, erm = (run(tmp_path, name, averaging=averaging) for name in (algorithm, "erm"))
    files = ["last.pt", *(["last_swa.pt"] if averaging == "swa" else [])]  # SWAD's depends on the adapted losses
    for file in files:
        tensors, theirs = (torch.load(record.folder / file, weights_only=True) for record in (ours, erm))
        assert all(torch.equal(tensors[name], theirs[name]) for name in theirs)
    assert ours.spec.settings["test_batch_size"] == 16
    assert ours.evaluations[-1].loss["raw"] != erm.evaluations[-1].loss["raw"]
    opened = open_run(ours.folder, dataset=signals(), progress=False)
    for model in ours.models:
        adapted = opened.algorithm("last", model)
        for name, parts in ours.evaluations[-1].accuracy[model].items():
            for part, accuracy in parts.items():
                domain = opened.prepared.dataset.domains[opened.prepared.dataset.index(name)]
                order = numpy_generator("test order", name, part).permutation(
                    getattr(opened.prepared.splits[name], part)
                )
                with torch.inference_mode():
                    predict = adapted.start_test()
                    batches = [order[start : start + 16] for start in range(0, len(order), 16)]
                    guesses = torch.cat([predict(domain.inputs.clean(batch)).argmax(1) for batch in batches])
                assert accuracy == pytest.approx(float((guesses.numpy() == domain.y[order]).mean()))


@pytest.mark.parametrize("algorithm", ["t3a", "tent"])
def test_a_killed_run_ends_like_an_undisturbed_one(algorithm: str, tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", algorithm)
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, "step", 5)
        with pytest.raises(Killed):
            run(tmp_path / "killed", algorithm)
    resumed = run(tmp_path / "killed", algorithm)
    assert (whole.folder / "record.json").read_bytes() == (resumed.folder / "record.json").read_bytes()


def test_bfloat16_runs(tmp_path: Path) -> None:
    for algorithm in ("t3a", "tent"):
        assert run(tmp_path, algorithm, precision="bf16").status == "done"


def test_models_that_predict_samples_alone_refuse_them(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Use erm"):
        fit(signals(), tmp_path / "model", algorithm="t3a", progress=False)
    with pytest.raises(UserError, match="Use coral"):
        DomainGeneralizer("tent+coral").fit(np.zeros((9, 2)), np.arange(9) % 3, domains=np.arange(9) // 3)
    for seed in (0, 1):
        run(tmp_path / "runs", "t3a", averaging="none", hparams_seed=seed)
    with pytest.raises(UserError, match="Use erm"):
        soup([tmp_path / "runs"], tmp_path / "soup", dataset=signals(), progress=False)


def test_tent_refuses_a_network_without_normalisation(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="batch norm, layer norm or group norm"):
        train(toy_spec("tent"), tmp_path, dataset=toy_data(), device="cpu", progress=False)
