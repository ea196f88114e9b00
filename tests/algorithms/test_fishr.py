"""Fishr against hand-made numbers and a twin that loops over samples and differentiates twice."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from algorithms.gradient_twins import assert_same_weights, double_batches, double_pair, plain_adam
from algorithms.properties import assert_resumes_at
from algorithms.toys import linear_algorithm, toy_algorithm, toy_batches
from fgmix import algorithms
from fgmix.algorithms import Algorithm, Batches
from fgmix.algorithms.fishr import Fishr, general_variance, linear_variance, spread
from fgmix.networks import build_classifier, build_featurizer


def naive_variance(head: nn.Module, z: Tensor, y: Tensor) -> Tensor:
    """Gradient of each sample by autograd, then mean squared distance to their mean; itself differentiable."""
    phi = list(head.parameters())
    rows = []
    for i in range(len(y)):
        loss = cross_entropy(head(z[i : i + 1]), y[i : i + 1])
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, phi, create_graph=True)]))
    G = torch.stack(rows)
    return (G - G.mean(0, keepdim=True)).pow(2).mean(0)


class Twin:
    """DomainBed's update: an average (1 − γ)V + γ·previous, divided by 1 − γ; Adam anew at the anneal step."""

    def __init__(self, network: nn.Sequential, lam: float, anneal: int, gamma: float) -> None:
        self.network, self.lam, self.anneal, self.gamma = network, lam, anneal, gamma
        self.optimizer = plain_adam(network)
        self.averages: list[Tensor] | None = None
        self.count = 0

    def step(self, batches: Batches) -> Tensor:
        featurizer, head = self.network
        V = [naive_variance(head, featurizer(x), y) for x, y in batches]
        previous = self.averages or [torch.zeros_like(V_e) for V_e in V]
        averages = [self.gamma * old + (1 - self.gamma) * V_e for old, V_e in zip(previous, V)]
        self.averages = [average.detach() for average in averages]
        corrected = [average / (1 - self.gamma) for average in averages]
        centre = torch.stack(corrected).mean(0)
        penalty = sum((u - centre).pow(2).mean() for u in corrected) / len(batches)
        if self.count == self.anneal != 0:
            self.optimizer = plain_adam(self.network)
        weight = self.lam if self.count >= self.anneal else 0.0
        self.count += 1
        x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
        objective = cross_entropy(self.network(x), y) + weight * penalty
        self.optimizer.zero_grad()
        objective.backward()
        self.optimizer.step()
        return penalty.detach()


def fishr_with_head(head: str, **settings: float) -> Algorithm:
    torch.manual_seed(7)
    featurizer = build_featurizer("mlp", (6,))
    classifier = build_classifier(head, featurizer.out_features, 4)
    fishr = algorithms.create("fishr", featurizer=featurizer, classifier=classifier, n_domains=2, lr=1e-3, **settings)
    return fishr.double().train()


def test_linear_variance_is_that_of_the_samples_gradients() -> None:
    torch.manual_seed(0)
    head = nn.Linear(5, 3).double()
    z, y = torch.randn(7, 5, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2, 0])
    R = head(z).softmax(1) - torch.eye(3)[y]
    expected = naive_variance(head, z, y)
    torch.testing.assert_close(linear_variance(z, R), expected)
    torch.testing.assert_close(linear_variance(z, R, bias=False), expected[:15])
    torch.testing.assert_close(general_variance(head, z, y), expected)


def test_general_variance_of_a_deeper_head() -> None:
    torch.manual_seed(0)
    head = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    z, y = torch.randn(6, 5, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    torch.testing.assert_close(general_variance(head, z, y), naive_variance(head, z, y))


def test_spread_of_two_domains() -> None:
    assert spread(torch.tensor([[1.0, 3.0], [3.0, 3.0]])).item() == 0.5
    assert spread(torch.ones(3, 5)).item() == 0


@pytest.mark.parametrize(("k", "anneal"), [(2, 0), (3, 2)])
def test_steps_are_domainbeds(k: int, anneal: int) -> None:
    fishr, network = double_pair("fishr", n_domains=k, lam=1000.0, anneal=anneal, gamma=0.9)
    twin = Twin(network, lam=1000.0, anneal=anneal, gamma=0.9)
    for step in range(4):
        batches = double_batches(k, b=4, seed=step)
        penalty = twin.step(batches)
        torch.testing.assert_close(fishr.step(batches)["penalty"], penalty)
        assert_same_weights(fishr, network)


def test_steps_with_a_deeper_head_are_domainbeds_too() -> None:
    fishr = fishr_with_head("mlp", anneal=1)
    twin = Twin(copy.deepcopy(nn.Sequential(fishr.featurizer, fishr.classifier)), lam=1000.0, anneal=1, gamma=0.95)
    for step in range(2):
        batches = double_batches(2, b=3, seed=step)
        twin.step(batches)
        fishr.step(batches)
    assert_same_weights(fishr, twin.network)


def test_a_head_without_bias() -> None:
    fishr = algorithms.create(
        "fishr", featurizer=nn.Identity(), classifier=nn.Linear(6, 4, bias=False), n_domains=2, anneal=0
    )
    fishr.step(toy_batches(2, shape=(6,)))
    assert fishr.u.shape == (2, 24)
    assert fishr.u.max() > 0


def test_constant_variances_sum_up_geometrically() -> None:
    """1, 1 + γ, 1 + γ + γ²: with γ = .95 these are 1, 1.95 and 2.8525."""
    fishr = linear_algorithm("fishr", lr=1e-30)
    batches = toy_batches(shape=(5,), classes=3)
    fishr.step(batches)
    V = fishr.u.clone()
    for factor in (1.95, 2.8525):
        fishr.step(batches)
        torch.testing.assert_close(fishr.u, factor * V)


def test_identical_domains_have_no_penalty_and_train_as_erm() -> None:
    batches = double_batches(1) * 3
    fishr, _ = double_pair("fishr", anneal=0)
    erm, _ = double_pair("erm")
    assert fishr.step(batches)["penalty"].item() == pytest.approx(0.0, abs=1e-20)
    erm.step(batches)
    assert_same_weights(fishr, erm)


def test_the_penalty_counts_from_the_anneal_step_on() -> None:
    fishr = toy_algorithm("fishr", anneal=2, lam=10.0)
    for step in range(4):
        metrics = fishr.step(toy_batches())
        weight = 10.0 if step >= 2 else 0.0
        assert metrics["penalty"] > 0
        torch.testing.assert_close(metrics["loss"], metrics["risk"] + weight * metrics["penalty"])


def test_adam_starts_anew_at_the_anneal_step() -> None:
    fishr = toy_algorithm("fishr", anneal=3)
    counts = []
    for _ in range(5):
        fishr.step(toy_batches())
        counts.append(int(fishr.optimizer.state[fishr.classifier.bias]["step"]))
    assert counts == [1, 2, 3, 1, 2]


@pytest.mark.parametrize("cut", [2, 3, 4])
def test_resume_around_the_anneal_step(cut: int) -> None:
    assert_resumes_at("fishr", cut, shape=(3, 16, 16), anneal=3)


def test_the_anneal_step_is_drawn_as_domainbed_draws_it() -> None:
    space = Fishr.Config.spaces("domainbed")["anneal"]
    drawn = space.draw(np.random.RandomState(3))
    assert drawn == int(np.random.RandomState(3).uniform(0.0, 5000.0))
    assert type(drawn) is int
