"""Evaluation: every sample is prepared once for all models, numbers stay on the device, threads do not matter."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from copying import replace
from fgmix.algorithms import Algorithm
from fgmix.data import loading
from fgmix.records.schema import to_plain
from fgmix.training import evaluate
from fgmix.training.averaging import RunningMean
from fgmix.training.evaluate import Start, Subset, bind_weights, evaluation_mode, score_subsets
from fgmix.training.loop import train
from fgmix.training.prepare import PreparedRun, build_algorithm, prepare
from training.killed_run import toy_data, toy_spec

CPU = torch.device("cpu")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> PreparedRun:
    monkeypatch.setattr(evaluate, "BATCH", 25)  # a domain has 60 samples: three batches
    return prepare(toy_spec(), toy_data())


def parts_of(run: PreparedRun) -> list[Subset]:
    return [Subset(domain, np.arange(len(domain))) for domain in run.dataset.domains]


def models_of(algorithm: Algorithm) -> dict[str, Start]:
    average = RunningMean(algorithm, start=1)
    return {"raw": algorithm.start_test, "swa": partial(bind_weights, algorithm, average.average())}


def test_samples_are_prepared_once_for_two_models(run: PreparedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[int] = []
    of_part = Subset.prepare

    def counting(self: Subset, start: int) -> loading.HostBatch:
        prepared.append(start)
        return of_part(self, start)

    monkeypatch.setattr(Subset, "prepare", counting)
    algorithm = build_algorithm(run)
    with evaluation_mode(algorithm):
        score_subsets(models_of(algorithm), parts_of(run), CPU, 3)
    assert sorted(prepared) == sorted(3 * [0, 25, 50])


class Fetches(TorchFunctionMode):
    """Counts what makes the host wait for numbers."""

    count = 0
    waiting = {Tensor.item, Tensor.tolist, Tensor.cpu, Tensor.__float__, Tensor.__int__, Tensor.__bool__}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func in self.waiting
        return func(*args, **(kwargs or {}))


def test_numbers_are_fetched_at_the_end_and_not_with_every_batch(
    run: PreparedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm, counts = build_algorithm(run), []
    for size in (5, 1000):  # twelve batches per domain, then one
        monkeypatch.setattr(evaluate, "BATCH", size)
        with evaluation_mode(algorithm), Fetches() as fetches:
            score_subsets(models_of(algorithm), parts_of(run), CPU, 3)
            counts.append(fetches.count)
    assert counts[0] == counts[1] > 0


def test_two_models_in_one_pass_score_as_in_a_pass_for_each(run: PreparedRun) -> None:
    algorithm, parts = build_algorithm(run), parts_of(run)
    with evaluation_mode(algorithm):
        models = models_of(algorithm)
        together = score_subsets(models, parts, CPU, 3)
        alone = {name: score_subsets({name: model}, parts, CPU, 3)[name] for name, model in models.items()}
    for name in models:
        assert [score[:2] for score in together[name]] == [score[:2] for score in alone[name]]


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_records_do_not_depend_on_the_threads(workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(toy_spec(), steps=6, eval_every=3, snapshots=0)
    once = train(spec, tmp_path / "once", dataset=toy_data(), device="cpu", progress=False)
    monkeypatch.setattr(loading, "default_workers", lambda: workers)
    again = train(spec, tmp_path / "again", dataset=toy_data(), device="cpu", progress=False)
    assert to_plain(again) == to_plain(once)
