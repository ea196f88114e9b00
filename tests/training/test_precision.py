"""float16 with loss scaling: the gradients of float32, no step where they overflow, the scale in the checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from algorithms.test_synchronisation import NoWaiting, meta, on_meta
from algorithms.toys import toy_algorithm, toy_batches
from fgmix import algorithms
from fgmix.algorithms import Algorithm, Batches, get
from fgmix.errors import UserError
from fgmix.records.schema import RunRecord, RunSpec
from fgmix.testing.toys import run_steps
from fgmix.training import loop
from fgmix.training import state as checkpoint
from fgmix.training.averaging import RunningMean
from fgmix.training.loop import train
from fgmix.training.precision import FIRST_SCALE, LossScaler
from fgmix.training.prepare import prepare
from fgmix.training.signals import Stopped
from training.killed_run import toy_data, toy_spec
from training.test_resume import assert_same_files
from training.test_signals import at_call

__all__ = ["meta"]  # a fixture
SMALLER = {"iga": {"lam": 1.0}}  # at its default of 1,000 the toy network's gradients reach 100,000


def run(spec: RunSpec, out: Path) -> RunRecord:
    return train(spec, out, dataset=toy_data(), device="cpu", progress=False)


class Probe(Algorithm):
    """One weight; the test writes the update."""

    update_by: Callable[[Probe], Tensor]

    def update(self, batches: Batches) -> dict[str, Tensor]:  # noqa: ARG002
        return {"loss": self.update_by(self)}


def probe(update_by: Callable[[Any], Tensor]) -> tuple[Probe, LossScaler]:
    linear = nn.Linear(1, 1, bias=False)
    nn.init.constant_(linear.weight, 2.0)
    algorithm = Probe(nn.Identity(), linear, 1, Probe.Config())
    algorithm.update_by = update_by  # type: ignore[method-assign]
    return algorithm, LossScaler(algorithm)


def step(algorithm: Probe, scaler: LossScaler) -> Tensor:
    with scaler.step():
        return algorithm.step([(torch.ones(1, 1), torch.zeros(1, dtype=torch.long))])["loss"]


def cubed(algorithm: Probe) -> Tensor:
    return algorithm.classifier.weight.pow(3).sum()


def by_backward_twice(algorithm: Probe) -> Tensor:
    algorithm.optimizer.zero_grad()
    cubed(algorithm).backward()
    cubed(algorithm).backward()
    return algorithm.classifier.weight.grad.sum() / 2  # type: ignore[union-attr]


def by_grad(algorithm: Probe) -> Tensor:
    (g,) = torch.autograd.grad(cubed(algorithm), algorithm.classifier.weight)
    return g.sum()


def of_a_gradient(algorithm: Probe) -> Tensor:
    """d/dw of (dw³/dw)² = 36 w³; 288 at w = 2."""
    (g,) = torch.autograd.grad(cubed(algorithm), algorithm.classifier.weight, create_graph=True)
    return torch.autograd.grad(g.square().sum(), algorithm.classifier.weight)[0].sum()


def by_torch_func(algorithm: Probe) -> Tensor:
    w = algorithm.classifier.weight.detach()
    return torch.func.vmap(torch.func.grad(lambda v: v.pow(3).sum()))(w).sum()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("way", "value"), [(by_backward_twice, 12), (by_grad, 12), (of_a_gradient, 288), (by_torch_func, 12)]
)
def test_methods_see_gradients_without_the_scale(way: Callable[[Probe], Tensor], value: float) -> None:
    algorithm, scaler = probe(way)
    assert step(algorithm, scaler).item() == value
    assert scaler.scale.item() == FIRST_SCALE


def test_small_gradients_survive_float16() -> None:
    """1e-9 is 0 in float16, and not if it is scaled first."""

    def tiny(algorithm: Probe) -> Tensor:
        algorithm.optimizer.zero_grad()
        loss = algorithm.classifier.weight.half().sum().float() * 1e-9
        loss.backward()
        return algorithm.classifier.weight.grad.sum()  # type: ignore[union-attr]

    algorithm, scaler = probe(tiny)
    assert step(algorithm, scaler).item() == pytest.approx(1e-9, rel=1e-2)
    assert tiny(algorithm).item() == 0


def test_no_optimiser_moves_where_a_gradient_overflows() -> None:
    def large(algorithm: Probe) -> Tensor:
        algorithm.optimizer.zero_grad()
        loss = algorithm.classifier.weight.half().sum().float() * 3.0  # 3 · 65,536 is infinite in float16
        loss.backward()
        algorithm.optimizer.step()
        return algorithm.classifier.weight.grad.sum()  # type: ignore[union-attr]

    algorithm, scaler = probe(large)
    assert step(algorithm, scaler).item() == 0, "finite, for methods that compute with it"
    assert algorithm.classifier.weight.item() == 2
    assert scaler.scale.item() == FIRST_SCALE / 2
    step(algorithm, scaler)
    assert scaler.scale.item() == FIRST_SCALE / 4
    assert step(algorithm, scaler).item() == 3
    assert algorithm.classifier.weight.item() < 2


def test_the_scale_grows_after_many_good_steps() -> None:
    algorithm, scaler = probe(by_grad)
    scaler.good_steps.fill_(1999)
    step(algorithm, scaler)
    assert scaler.scale.item() == 2 * FIRST_SCALE


def test_a_run_that_no_scale_helps_ends_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fgmix.training.precision.FIRST_SCALE", 2.0**-9)
    with pytest.raises(UserError, match=r"gradients of ERM that fit into float16.*--precision bf16"):
        run(replace(toy_spec(), precision="fp16"), tmp_path)


@pytest.mark.usefixtures("meta")
def test_neither_scaling_nor_averaging_waits_for_the_device() -> None:
    algorithm, batches = on_meta(toy_algorithm("erm"), toy_batches(b=4))
    scaler, average = LossScaler(algorithm), RunningMean(algorithm, start=1)
    with NoWaiting():
        for number in (1, 2):
            with scaler.step():
                run_steps(algorithm, batches, number - 1, number)
            average.update(algorithm, number)
    assert scaler.scale.is_meta


@pytest.mark.parametrize("name", algorithms.names())
def test_every_method_trains_in_float16(name: str) -> None:
    algorithm = toy_algorithm(name, **get(name).at_work, **SMALLER.get(name, {}))
    scaler = LossScaler(algorithm)
    scaler.scale.fill_(2.0**4)  # where halving would lead the methods with the largest losses
    before = [p.detach().clone() for p in algorithm.parameters()]
    for first in range(2):
        with torch.autocast("cpu", torch.float16), scaler.step():
            metrics = run_steps(algorithm, toy_batches(b=4), first, first + 1)
        assert all(value.isfinite() for value in metrics.values()), metrics
    assert all(p.isfinite().all() for p in algorithm.parameters())
    assert any(not torch.equal(p, q) for p, q in zip(algorithm.parameters(), before))


def test_a_float16_run_resumes_to_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(toy_spec(), precision="fp16")
    monkeypatch.setattr("fgmix.training.precision.GROWTH_STEPS", 7)  # so that the scale changes on the way
    whole = run(spec, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(loop._Loop, "_step", at_call(13, loop._Loop._step))
        with pytest.raises(Stopped):
            run(spec, tmp_path / "stopped")
    (folder,) = (tmp_path / "stopped").iterdir()
    assert checkpoint.read(folder / "checkpoint.pt", "cpu")["progress"]["scaler"]["scale"].item() == 2 * FIRST_SCALE
    assert whole.folder is not None
    record = run(spec, tmp_path / "stopped")
    assert record.folder is not None
    assert_same_files(whole.folder, record.folder)


def test_one_run_by_two_names() -> None:
    long, short = (
        prepare(replace(toy_spec(), **said), toy_data()).spec for said in ({"precision": "bf16"}, {"bf16": True})
    )
    assert long.name == short.name != prepare(toy_spec(), toy_data()).spec.name
    with pytest.raises(UserError, match="--bf16 and --precision fp16"):
        prepare(replace(toy_spec(), bf16=True, precision="fp16"), toy_data())
