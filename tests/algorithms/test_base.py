"""What the base class guards every method against."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Adam

from algorithms.toys import toy_algorithm, toy_batches
from fgmix import algorithms
from fgmix.algorithms import Algorithm, BaseConfig, Batches
from fgmix.algorithms._optimizer import DenseAdam
from fgmix.algorithms.sam import SAM
from fgmix.errors import UserError


class Assigns(Algorithm):
    """A method that writes gradients into `.grad` by itself, laid out as it pleases."""

    def update(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batches[0]
        loss = cross_entropy(self.predict(x), y)
        parameters = [*self.featurizer.parameters(), *self.classifier.parameters()]
        for p, g in zip(parameters, torch.autograd.grad(loss, parameters)):
            p.grad = g.contiguous()
        self.optimizer.step()
        return {"loss": loss}


def assigning(layout: torch.memory_format) -> Assigns:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten())
    return Assigns(net.to(memory_format=layout), nn.Linear(4 * 36, 2), 1, BaseConfig(lr=0.1))  # type: ignore[call-overload]


def test_assigned_gradients_move_the_right_weights_in_any_layout() -> None:
    """Fused Adam alone fails this: it reads a contiguous gradient as if it were channels last."""
    batches = toy_batches(1, b=4, shape=(3, 8, 8), classes=2)
    plain, last = assigning(torch.contiguous_format), assigning(torch.channels_last)
    for _ in range(3):
        plain.step(batches)
        last.step(batches)
    torch.testing.assert_close(plain.featurizer[0].weight, last.featurizer[0].weight)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_our_adam_moves_weights_as_torchs_plain_one_does(layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 1), nn.Flatten(), nn.Linear(5 * 36, 2))]
    nets.append(copy.deepcopy(nets[0]).to(memory_format=layout))  # type: ignore[call-overload]
    settings: dict[str, Any] = {"lr": 0.1, "betas": (0.8, 0.9), "weight_decay": 0.01}
    optimizers = [Adam(nets[0].parameters(), fused=False, **settings), DenseAdam(nets[1].parameters(), **settings)]
    for _ in range(3):
        x = torch.randn(4, 3, 8, 8)
        for net, optimizer in zip(nets, optimizers, strict=True):
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()
    for plain, ours in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(ours, plain)


def test_moments_keep_their_layout_through_a_checkpoint(tmp_path: Path) -> None:
    """Moments that came back in another order of memory would move the wrong numbers."""
    batches = toy_batches(1, b=4, shape=(3, 8, 8), classes=2)
    through, resumed = assigning(torch.channels_last), assigning(torch.channels_last)
    for _ in range(2):
        through.step(batches)
    torch.save(through.state_dict(), tmp_path / "state.pt")
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for method in (through, resumed):
        method.step(batches)
    assert torch.equal(through.featurizer[0].weight, resumed.featurizer[0].weight)


class TwoUpdates(Algorithm):
    """A method that updates twice a step; the second loss must see the weights that the first one moved."""

    def update(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batches[0]
        losses = []
        for _ in range(2):
            loss = cross_entropy(self.predict(x).float(), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss)
        return {"loss": losses[0], "second": losses[1]}


def test_a_second_update_sees_the_first_under_autocast() -> None:
    torch.manual_seed(0)
    method = TwoUpdates(nn.Identity(), nn.Linear(5, 2), 1, BaseConfig(lr=0.5))
    with torch.autocast("cpu", torch.bfloat16):
        metrics = method.step(toy_batches(1, shape=(5,), classes=2))
        assert torch.is_autocast_cache_enabled()
    assert abs(float(metrics["loss"] - metrics["second"])) > 0.01


def test_sizes_are_read_from_the_networks() -> None:
    erm = toy_algorithm("erm")
    assert (erm.code_size, erm.n_classes) == (96, 4)
    plain = Algorithm(nn.Identity(), nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 3)), 1, BaseConfig())
    assert (plain.code_size, plain.n_classes) == (7, 3)


@pytest.mark.parametrize(("name", "anneal"), [("irm", 500), ("vrex", 500), ("fishr", 1500)])
def test_a_penalty_that_a_run_is_too_short_for_is_announced(name: str, anneal: int) -> None:
    method = algorithms.get(name)
    (sentence,) = method.idle_parts(method.Config(steps=anneal))
    assert f"takes effect after {anneal} steps (`anneal`), and this run has {anneal}." in sentence
    assert not method.idle_parts(method.Config(steps=anneal + 1))
    assert not method.idle_parts(method.Config(steps=300, anneal=299))


@pytest.mark.parametrize("name", algorithms.names())
def test_delayed_parts_name_settings_and_defaults_on_photos_leave_nothing_idle(name: str) -> None:
    method = algorithms.get(name)
    assert set(method.delayed) <= set(method.Config.names())
    assert method.idle_parts(method.Config()) == []
    assert method.idle_parts(method.Config(**method.at_work, steps=2)) == []  # ERM++ always probes in its first step


@pytest.mark.parametrize("name", algorithms.names())
def test_the_base_model_stands_still_before_its_first_step_and_moves_in_it(name: str) -> None:
    """What weight averages are told: no part of g or h moves earlier, and some part does then."""
    algorithm = toy_algorithm(name)
    first, batches = algorithm.first_base_step(algorithm.config), toy_batches()
    moved = []
    for _ in range(first + 1):
        before = {n: p.clone() for n, p in algorithm.named_parameters() if n.startswith(("featurizer", "classifier"))}
        algorithm.train().step(batches)
        moved.append(any(not torch.equal(before[n], p) for n, p in algorithm.named_parameters() if n in before))
    assert moved == [False] * first + [algorithm.trains]


class Returns(Algorithm):
    """A method that returns what it is given."""

    returned: Any = None

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        loss = cross_entropy(self.predict(batches[0][0]), batches[0][1])
        return self.returned(loss) if callable(self.returned) else self.returned  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("returned", "name"),
    [
        (None, "NoneType"),
        (lambda loss: loss, "Tensor"),
        (lambda loss: {"risk": loss}, "risk"),
        ({}, "loss"),
        ({"loss": 0.5}, "0.5"),
        (lambda loss: {"loss": loss.expand(3)}, "(3,)"),
        (lambda loss: {"loss": loss.detach()}, "gradient"),
        (lambda loss: {"loss": loss, "gap": 3}, "gap"),
        (lambda loss: {"loss": loss, "gaps": loss.expand(2)}, "gaps"),
    ],
)
@pytest.mark.parametrize("wrapper", [None, SAM])
def test_what_a_method_returns_is_checked_at_the_first_step(
    returned: object, name: str, wrapper: type[Algorithm] | None
) -> None:
    cls = Returns if wrapper is None else type("Wrapped", (Returns, wrapper), {"Config": wrapper.Config})
    algorithm = cls(nn.Flatten(), nn.Linear(4, 2), 1, cls.Config())
    algorithm.returned = returned
    with pytest.raises(UserError, match=re.escape(name)):
        algorithm.step(toy_batches(1, b=4, shape=(4,), classes=2))


@pytest.mark.parametrize(
    "y",
    [
        torch.zeros(4),
        torch.zeros(4, dtype=torch.int32),
        torch.zeros(4, 1, dtype=torch.int64),
        torch.full((4,), 7),
        torch.full((4,), -100),  # which torch's cross-entropy leaves out silently
    ],
)
def test_labels_are_checked_at_the_first_step(y: Tensor) -> None:
    algorithm = algorithms.create("erm", featurizer=nn.Flatten(), classifier=nn.Linear(4, 2), n_domains=1)
    with pytest.raises(UserError, match="labels"):
        algorithm.step([(torch.randn(4, 4), y)])


def test_a_method_without_an_objective_is_told() -> None:
    with pytest.raises(UserError, match="objective"):
        Algorithm(nn.Flatten(), nn.Linear(4, 2), 1, BaseConfig()).step(toy_batches(1, b=4, shape=(4,), classes=2))
