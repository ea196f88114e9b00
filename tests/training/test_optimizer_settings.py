"""Optimiser settings in a run: part of its identity, exact on resume, fixed by DomainBed's protocols."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from copying import replace
from fgmix.algorithms import Batches
from fgmix.algorithms.erm import ERM
from fgmix.data import DomainDataset, from_arrays
from fgmix.errors import UserError
from fgmix.records.schema import RunRecord, to_plain
from fgmix.training.loop import train
from fgmix.training.resolve import resolve
from fgmix.training.state import read_weights
from training.killed_run import Killed, kill_at, toy_data, toy_spec

OPTIMIZER = {
    "optimizer": "adamw",
    "schedule": "cosine",
    "lr_warmup": 10,
    "weight_decay": 0.1,
    "decay_on": "matrices",
    "head_lr": 0.01,
    "clip_norm": 0.5,
}


def run(out: Path, algorithm: str = "erm", trunk: int = 0, **settings: Any) -> RunRecord:
    spec = replace(toy_spec(algorithm), settings={**OPTIMIZER, **settings})
    return train(spec, out, dataset=toy_data(), device="cpu", progress=False, trunk=trunk)


def assert_same_run(ours: RunRecord, theirs: RunRecord) -> None:
    assert ours.folder
    assert theirs.folder
    assert (ours.folder / "record.json").read_bytes() == (theirs.folder / "record.json").read_bytes()
    left, right = (read_weights(folder / "last.pt") for folder in (ours.folder, theirs.folder))
    assert left.keys() == right.keys()
    assert all(torch.equal(left[key], right[key]) for key in left)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_resume_in_the_middle_of_warm_up_and_of_decay(tmp_path: Path, optimizer: str) -> None:
    whole = run(tmp_path / "whole", optimizer=optimizer)
    for moment in (6, 17):  # of warm-up, and in the second attempt, which begins at step 4, of decay
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, "step", moment)
            with pytest.raises(Killed):
                run(tmp_path / "killed", optimizer=optimizer)
    assert_same_run(run(tmp_path / "killed", optimizer=optimizer), whole)


def test_resume_in_the_middle_of_a_step_with_micro_batches(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", accumulate=4)
    objective, passes = ERM.objective, count()

    def die_in_a_third_of_four(self: ERM, batches: Batches) -> dict[str, Tensor]:
        if next(passes) == 4 * 13 + 2:
            raise Killed
        return objective(self, batches)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ERM, "objective", die_in_a_third_of_four)
        with pytest.raises(Killed):
            run(tmp_path / "killed", accumulate=4)
    assert_same_run(run(tmp_path / "killed", accumulate=4), whole)


def test_micro_batches_are_refused_before_training() -> None:
    for algorithm, n in (("coral", 2), ("erm", 9)):  # batches have 8 samples
        with pytest.raises(UserError, match="accumulate"):
            resolve(replace(toy_spec(algorithm), settings={"accumulate": n}), toy_data())


def small_images() -> DomainDataset:
    rng = np.random.default_rng(0)
    y, domain = np.arange(60) % 3, np.arange(60) // 20
    return from_arrays(rng.random((60, 3, 16, 16), dtype=np.float32) + y[:, None, None, None] / 3, y, domain)


def test_checkpointed_activations_are_the_same_run(tmp_path: Path) -> None:
    """With dropout, whose masks are repeated; only the spec says that they were."""
    data, spec = small_images(), replace(toy_spec(), steps=4, eval_every=2)
    specs = [spec, replace(spec, checkpoint_activations=True)]
    first, second = (
        train(each, tmp_path / str(i), dataset=data, device="cpu", progress=False) for i, each in enumerate(specs)
    )
    assert first.spec.name == second.spec.name
    plain, repeated = to_plain(first), to_plain(second)
    assert repeated["spec"].pop("checkpoint_activations") is True
    assert plain == repeated
    with pytest.raises(UserError, match="checkpoint_activations"):
        resolve(replace(specs[1], algorithm="mldg"), data)


def test_a_shared_trunk_has_the_optimiser(tmp_path: Path) -> None:
    """A trunk of ERM gives FGMix the moments of AdamW and the state of the schedule."""
    alone, shared = (run(tmp_path / str(trunk), "fgmix", trunk=trunk) for trunk in (0, 17))
    assert_same_run(shared, alone)


def test_the_optimiser_is_part_of_a_run_unless_it_is_the_default() -> None:
    data = toy_data()
    plain = resolve(toy_spec(), data)
    named = resolve(replace(toy_spec(), settings={"optimizer": "adam", "head_lr": None, "layer_decay": 1}), data)
    other = resolve(replace(toy_spec(), settings={"optimizer": "adamw"}), data)
    assert (named, named.name) == (plain, plain.name)
    assert other.name != plain.name
    assert other.settings["optimizer"] == "adamw"


@pytest.mark.parametrize("protocol", ["domainbed-2020", "domainbed-2024"])
def test_domainbeds_protocols_fix_the_optimiser(protocol: str) -> None:
    spec = replace(toy_spec(), protocol=protocol)
    resolve(replace(spec, settings={"schedule": "constant"}), toy_data())
    with pytest.raises(UserError, match="schedule"):
        resolve(replace(spec, settings={"schedule": "cosine"}), toy_data())
