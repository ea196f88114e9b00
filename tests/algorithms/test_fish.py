"""Fish against hand-made numbers and a twin of DomainBed's update, which clones the network in every step."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from algorithms.gradient_twins import assert_same_weights, double_batches, double_pair, plain_adam
from algorithms.toys import toy_algorithm, toy_batches
from fgmix import algorithms
from fgmix.algorithms import Algorithm, Batches, fish


class Twin:
    """Clone, one Adam step per domain on the clone (its moments carried over), move all of the state towards it."""

    def __init__(self, network: nn.Module, eta: float, weight_decay: float = 0.0) -> None:
        self.network, self.eta, self.weight_decay = network, eta, weight_decay
        self.inner_state: dict[str, Any] | None = None

    def step(self, batches: Batches) -> None:
        inner = copy.deepcopy(self.network)
        optimizer = plain_adam(inner, weight_decay=self.weight_decay)
        if self.inner_state is not None:
            optimizer.load_state_dict(self.inner_state)
        for x, y in batches:
            optimizer.zero_grad()
            cross_entropy(inner(x), y).backward()
            optimizer.step()
        self.inner_state = optimizer.state_dict()
        ours, theirs = self.network.state_dict(), inner.state_dict()
        self.network.load_state_dict({n: ours[n] + self.eta * (theirs[n] - ours[n]) for n in ours})


@pytest.mark.parametrize(("k", "eta"), [(2, 0.5), (3, 0.05), (3, 1.0)])
def test_steps_are_domainbeds(k: int, eta: float) -> None:
    algorithm, network = double_pair("fish", n_domains=k, eta=eta, weight_decay=1e-2)
    twin = Twin(network, eta, weight_decay=1e-2)
    for step in range(3):
        batches = double_batches(k, seed=step)
        twin.step(batches)
        algorithm.step(batches)
        assert_same_weights(algorithm, network)


def test_running_statistics_move_as_the_weights_do() -> None:
    torch.manual_seed(0)
    featurizer = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU())
    algorithm = algorithms.create("fish", featurizer=featurizer, classifier=nn.Linear(5, 4), n_domains=3, lr=1e-3)
    algorithm.double().train()
    network = copy.deepcopy(nn.Sequential(algorithm.featurizer, algorithm.classifier))
    twin = Twin(network, eta=0.5)
    for step in range(3):
        batches = double_batches(seed=step)
        twin.step(batches)
        algorithm.step(batches)
    assert_same_weights(algorithm, network)
    torch.testing.assert_close(algorithm.featurizer[1].running_mean, network[0][1].running_mean)
    torch.testing.assert_close(algorithm.featurizer[1].running_var, network[0][1].running_var)


def quadratic_fish(monkeypatch: pytest.MonkeyPatch, eta: float) -> Algorithm:
    """Fish on l(θ) = (θ − c)²/2 from θ = 0, with plain gradient steps of 0.1 inside; the label is c."""
    monkeypatch.setattr(fish, "cross_entropy", lambda prediction, c: (prediction - c).square().mean() / 2)
    theta = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(theta.weight)
    algorithm = algorithms.create("fish", featurizer=nn.Identity(), classifier=theta, n_domains=2, eta=eta)
    algorithm.optimizer = torch.optim.SGD(theta.parameters(), lr=0.1)
    return algorithm


def target(c: float) -> tuple[Tensor, Tensor]:
    return torch.ones(1, 1), torch.tensor([[c]])


@pytest.mark.parametrize(
    ("eta", "order", "moved"),
    [(0.5, (1.0, 2.0), 0.145), (0.5, (2.0, 1.0), 0.14), (1.0, (1.0, 2.0), 0.29), (0.0, (1.0, 2.0), 0.0)],
)
def test_two_quadratics(monkeypatch: pytest.MonkeyPatch, eta: float, order: tuple[float, ...], moved: float) -> None:
    """θ̃ = (1 − a)² θ + a (1 − a) c_1 + a c_2 with a = 0.1."""
    algorithm = quadratic_fish(monkeypatch, eta)
    metrics = algorithm.update([target(c) for c in order])  # not `step`, which requires classes as labels
    assert algorithm.classifier.weight.item() == pytest.approx(moved, abs=1e-7)
    first, second = order[0] ** 2 / 2, (0.1 * order[0] - order[1]) ** 2 / 2
    assert metrics["loss"].item() == pytest.approx((first + second) / 2)


def test_eta_one_is_sequential_training() -> None:
    algorithm, network = double_pair("fish", eta=1.0)
    optimizer = plain_adam(network)
    for step in range(2):
        batches = double_batches(seed=step)
        algorithm.step(batches)
        for x, y in batches:
            optimizer.zero_grad()
            cross_entropy(network(x), y).backward()
            optimizer.step()
    assert_same_weights(algorithm, network)


def test_under_autocast_every_domain_sees_the_weights_that_the_one_before_left() -> None:
    """One autocast around the step, as the loop has it, against one around each forward pass."""
    batches = toy_batches(shape=(6,))
    algorithm = toy_algorithm("fish", shape=(6,), eta=1.0, lr=0.1).train()
    network = copy.deepcopy(nn.Sequential(algorithm.featurizer, algorithm.classifier))
    optimizer = plain_adam(network, lr=0.1)
    risks = []
    for x, y in batches:
        with torch.autocast("cpu", torch.bfloat16):
            risks.append(cross_entropy(network(x), y))
        optimizer.zero_grad()
        risks[-1].backward()
        optimizer.step()
    with torch.autocast("cpu", torch.bfloat16):
        metrics = algorithm.step(batches)
    torch.testing.assert_close(metrics["loss"], torch.stack(risks).mean().detach())


def test_shuffle_visits_the_domains_in_the_order_drawn() -> None:
    batches = double_batches()
    algorithm, network = double_pair("fish", shuffle=True)
    torch.manual_seed(2)
    order = torch.randperm(3).tolist()
    assert order != [0, 1, 2]
    torch.manual_seed(2)
    algorithm.step(batches)
    Twin(network, eta=0.5).step([batches[e] for e in order])
    assert_same_weights(algorithm, network)
