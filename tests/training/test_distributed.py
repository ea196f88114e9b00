"""Several processes train one run: with the bits of one process that has as many micro-batches."""

from __future__ import annotations

import copy
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from algorithms.toys import toy_algorithm, toy_batches
from copying import replace
from fgmix.errors import UserError
from fgmix.records.schema import RunRecord, to_plain
from fgmix.records.store import read_record
from fgmix.training.distributed import _Team, check_shares, find_role
from fgmix.training.loop import train
from fgmix.training.resolve import resolve
from fgmix.training.state import read_weights
from training.killed_run import Killed, kill_at, toy_data, toy_spec


@pytest.fixture
def group() -> Iterator[_Team]:
    """A team of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield _Team(0, 1, torch.device("cpu"), dist.group.WORLD)
    dist.destroy_process_group()


@pytest.mark.parametrize("name", ["erm", "sam", "ermplusplus"])
def test_shared_steps_of_one_process_are_its_own(group: _Team, name: str) -> None:
    alone = toy_algorithm(name)
    shared = copy.deepcopy(alone)
    group.share(shared)
    for _ in range(2):
        expected, found = alone.step(toy_batches()), shared.step(toy_batches())
    assert expected == found
    ours, theirs = alone.state_dict(), shared.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours if key != "_extra_state")
    group.leave()
    assert not any(type(each) is DistributedDataParallel for each in gc.get_objects())
    assert shared.step(toy_batches()) == alone.step(toy_batches())


def test_a_process_without_torchrun_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_role() == "alone"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    for rank, size, role in (("0", "1", "alone"), ("0", "2", "leader"), ("1", "2", "follower")):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", size)
        assert find_role() == role


def test_runs_that_cannot_be_shared_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for local, size, algorithm, batch_size in ((2, 2, "coral", 8), (2, 2, "erm", 7), (2, 4, "erm", 8)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local))
        monkeypatch.setenv("WORLD_SIZE", str(size))
        spec = resolve(replace(toy_spec(algorithm), batch_size=batch_size), toy_data())
        with pytest.raises(UserError):
            check_shares(spec, size)


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    y, domain = np.arange(180) % 3, np.arange(180) // 60
    path = tmp_path_factory.mktemp("data") / "arrays.npz"
    np.savez(path, x=rng.normal(size=(180, 6)) + y[:, None] + 0.3 * domain[:, None], y=y, domain=domain)
    return path


def train_alone(data: Path, out: Path, **settings: object) -> RunRecord:
    spec = replace(toy_spec(), dataset=str(data), dropout=0.0, settings=settings)
    return train(spec, out, device="cpu", progress=False)


def train_in_two(data: Path, out: Path, **settings: object) -> RunRecord:
    """Start two processes as a user does."""
    options = {"dataset": data, "algorithm": "erm", "test-domain": 2, "steps": 30, "batch-size": 8, "eval-every": 10}
    options |= {"averaging-start": 5, "snapshots": 3, "device": "cpu", "out": out}
    flags = [f"--{name}={value}" for name, value in options.items()]
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*torchrun, "-m", "fgmix", "train", *flags, *given, "--quiet"], check=True, env=environment)
    (folder,) = out.iterdir()
    return read_record(folder)


@pytest.mark.long
def test_two_micro_batches_have_the_same_bits_in_one_process_and_in_two(arrays: Path, tmp_path: Path) -> None:
    optimizer = {"optimizer": "adamw", "schedule": "cosine", "lr_warmup": 5, "clip_norm": 0.5, "weight_decay": 0.1}
    two = train_in_two(arrays, tmp_path / "two", accumulate=2, **optimizer)
    one = train_alone(arrays, tmp_path / "one", accumulate=2, **optimizer)
    assert two.spec.name == one.spec.name
    assert to_plain(two)["evaluations"] == to_plain(one)["evaluations"]
    assert two.folder
    assert one.folder
    ours, theirs = (read_weights(folder / "last_swa.pt") for folder in (two.folder, one.folder))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.long
def test_two_processes_resume_what_one_began_and_agree_with_it(arrays: Path, tmp_path: Path) -> None:
    """The stated tolerance of the same batch in one process: 1e-5 in a loss, with SGD."""
    optimizer = {"optimizer": "sgd", "lr": 0.01, "schedule": "cosine"}
    one = train_alone(arrays, tmp_path / "one", **optimizer)
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, "step", 13)
        with pytest.raises(Killed):
            train_alone(arrays, tmp_path / "two", **optimizer)
    two = train_in_two(arrays, tmp_path / "two", **optimizer)
    assert two.spec.name == one.spec.name
    for ours, theirs in zip(two.evaluations, one.evaluations, strict=True):
        for model in ("raw", "swa"):
            for domain, losses in theirs.loss.get(model, {}).items():  # type: ignore[call-overload]
                assert ours.loss[model][domain] == pytest.approx(losses, abs=1e-5)  # type: ignore[index]
