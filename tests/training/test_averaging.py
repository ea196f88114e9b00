"""The running mean of weights against a mean computed from all of them; SWAD as a run's average."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from algorithms.test_synchronisation import NoWaiting, meta, on_meta
from algorithms.toys import toy_algorithm, toy_batches
from copying import replace
from fgmix.algorithms import Algorithm, create
from fgmix.records.evaluations import Model
from fgmix.training import loop
from fgmix.training.averaging import OverfitAware, RunningMean, WeightAverage, get_predictor_tensors
from fgmix.training.evaluate import Start, score_run
from fgmix.training.loop import train
from fgmix.training.prepare import PreparedRun
from training.killed_run import toy_data, toy_spec

__all__ = ["meta"]  # a fixture


def snapshot(algorithm: Algorithm) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in get_predictor_tensors(algorithm).items()}


def test_mean_of_all_weights_from_the_start_on() -> None:
    erm = toy_algorithm("erm", lr=0.05)
    mean, seen = RunningMean(erm, start=3), []
    for step in range(1, 8):
        erm.step(toy_batches())
        mean.update(step)
        seen.append(snapshot(erm))
        assert mean.is_raw == (step <= 3)
        if mean.is_raw:
            assert all(torch.equal(mean.average()[name], now) for name, now in seen[-1].items())
    for name in seen[0]:
        expected = torch.stack([s[name].double() for s in seen[2:]]).mean(0)
        torch.testing.assert_close(mean.average()[name].double(), expected, rtol=1e-5, atol=1e-6)


def test_applying_the_mean_leaves_training_untouched() -> None:
    """The trajectory with an average beside it is the one without."""
    plain, averaged = toy_algorithm("erm"), toy_algorithm("erm")
    mean = RunningMean(averaged, start=1)
    for step in range(1, 5):
        plain.step(toy_batches())
        averaged.step(toy_batches())
        mean.update(step)
        with mean.applied_to(averaged):
            assert all(torch.equal(now, mean.average()[name]) for name, now in get_predictor_tensors(averaged).items())
    for name, tensor in get_predictor_tensors(plain).items():
        assert torch.equal(tensor, get_predictor_tensors(averaged)[name])


@pytest.mark.parametrize("algorithm", ["erm", "fgmix"])
def test_an_average_from_tau_on_contains_nothing_from_before(algorithm: str, tmp_path: Path) -> None:
    """At step τ = 18 of 30 it is the weights of that step, also behind shared first steps; later they differ."""
    spec = replace(toy_spec(algorithm), averaging_start=18, eval_every=9)
    record = train(spec, tmp_path, dataset=toy_data(), device="cpu", progress=False, trunk=17)
    assert record.spec.averaging_start == 18
    same = {e.step: e.loss["raw"] == e.loss["swa"] for e in record.evaluations}
    assert same == {9: True, 18: True, 27: False, 30: False}


def test_an_average_that_is_the_raw_model_is_not_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At steps 9 and 18 the scores of the raw model are those of the average, which begins at 18."""
    scored: list[tuple[int, list[str]]] = []

    def score(run: PreparedRun, algorithm: Algorithm, models: Mapping[Model, Start], step: int) -> Any:
        scored.append((step, list(models)))
        return score_run(run, algorithm, models, step)

    monkeypatch.setattr(loop, "score_run", score)
    spec = replace(toy_spec("erm"), averaging_start=18, eval_every=9, steps=27)
    record = train(spec, tmp_path, dataset=toy_data(), device="cpu", progress=False)
    assert scored == [(9, ["raw"]), (18, ["raw"]), (27, ["raw", "swa"])]
    assert [each.loss["raw"] == each.loss["swa"] for each in record.evaluations] == [True, True, False]


def test_integer_buffers_are_copied_not_averaged() -> None:
    erm = toy_algorithm("erm")
    erm.featurizer.net.stem.append(torch.nn.BatchNorm2d(16))
    mean = RunningMean(erm, start=1)
    for step in (1, 2, 3):
        erm.step(toy_batches())
        mean.update(step)
    counted = [tensor for name, tensor in mean.average().items() if name.endswith("num_batches_tracked")]
    assert [int(tensor) for tensor in counted] == [3]


@pytest.mark.usefixtures("meta")
def test_averaging_does_not_wait_for_the_device() -> None:
    algorithm, _ = on_meta(toy_algorithm("erm"), toy_batches(b=4))
    average = RunningMean(algorithm, start=1)
    with NoWaiting():
        for step in (1, 2):
            average.update(step)


@pytest.mark.parametrize("kind", [lambda erm: RunningMean(erm, start=2), OverfitAware])
def test_an_interrupted_average_goes_on(kind: Callable[[Algorithm], WeightAverage]) -> None:
    """State saved and loaded at any step, within a segment or at an evaluation."""
    losses = [3.0, 1.0, 1.1, 1.2, 0.9, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0]

    def run(cuts: set[int]) -> dict[str, torch.Tensor]:
        erm = toy_algorithm("erm", lr=0.05)
        average = kind(erm)
        for step in range(1, 25):
            erm.step(toy_batches(b=2))
            average.update(step)
            if step % 2 == 0:
                average.add_loss(losses[step // 2 - 1])
            if step in cuts:
                state = io.BytesIO()
                torch.save(average.state_dict(), state)
                state.seek(0)
                average = kind(erm)
                average.load_state_dict(torch.load(state, weights_only=True))
        return {name: tensor.clone() for name, tensor in average.average().items()}

    whole, cut = run(set()), run({1, 6, 11, 20})
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_swad_stands_beside_the_raw_model_in_a_run(tmp_path: Path) -> None:
    spec = replace(toy_spec(), averaging="swad", eval_every=2)
    record = train(spec, tmp_path, dataset=toy_data(), device="cpu", progress=False)
    assert record.models == ("raw", "swad")
    assert record.selected("swad") == record.evaluations[-1]
    assert record.folder is not None
    assert (record.folder / "last_swad.pt").exists()


def test_swad_takes_in_nothing_before_the_base_model_trains() -> None:
    erm = create("erm", featurizer=nn.Identity(), classifier=nn.Linear(1, 2), n_domains=1)
    average = OverfitAware(erm, start=3)
    for step in range(1, 7):
        nn.init.constant_(erm.classifier.weight, step)
        average.update(step)
        average.add_loss(1 / step)
    assert average.average()["classifier.weight"].flatten().tolist() == [6.0, 6.0]
    assert average.swad.closed == 4, "steps 3 to 6"


def test_modules_are_walked_once_and_a_replaced_buffer_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    erm = create("erm", featurizer=nn.BatchNorm1d(2), classifier=nn.Linear(2, 2), n_domains=1)
    mean = RunningMean(erm, start=1)
    monkeypatch.setattr(nn.Module, "named_modules", None)
    erm.featurizer.running_mean = torch.full((2,), 7.0)
    mean.update(1)
    assert mean.average()["featurizer.running_mean"].tolist() == [7.0, 7.0]
