"""ERM++ against DomainBed's update written out: two Adams, and an average that is a network of its own."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import Adam

from algorithms.properties import assert_resumes_at
from algorithms.toys import toy_algorithm, toy_batches
from fgmix import algorithms
from fgmix.algorithms import Algorithm, Batches
from reference.twin import wide


class DomainBeds:
    """Their update, with its counters."""

    def __init__(self, ours: Algorithm, linear_steps: int, average_start: int) -> None:
        self.network = copy.deepcopy(nn.Sequential(ours.featurizer, ours.classifier))
        self.average = copy.deepcopy(self.network)
        self.whole = Adam(self.network.parameters(), lr=1e-3, weight_decay=1e-2)
        self.linear = Adam(self.network[1].parameters(), lr=5e-3, weight_decay=1e-2)
        self.linear_steps, self.average_start = linear_steps, average_start
        self.iteration = self.averaged = 0

    def step(self, batches: Batches) -> None:
        x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
        optimizer = self.whole if self.iteration > self.linear_steps else self.linear
        optimizer.zero_grad()
        cross_entropy(self.network.train()(x), y).backward()
        optimizer.step()
        self.iteration += 1
        self.averaged += self.iteration >= self.average_start
        state = self.average.state_dict()
        for name, value in self.network.state_dict().items():
            if "num_batches_tracked" not in name:
                kept = self.averaged if self.iteration >= self.average_start else 0
                state[name].copy_((state[name] * kept + value) / (1 + kept))
        with torch.no_grad():
            self.average.train()(x)


def with_batch_norm(**settings: float) -> Algorithm:
    torch.manual_seed(7)
    featurizer = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU())
    settings = {"lr": 1e-3, "linear_lr": 5e-3, "weight_decay": 1e-2, **settings}
    return algorithms.create("ermplusplus", featurizer=featurizer, classifier=nn.Linear(5, 4), n_domains=3, **settings)


@pytest.mark.parametrize(("linear_steps", "average_start"), [(0, 0), (0, 1), (1, 3), (2, 2), (100, 4), (0, 100)])
def test_steps_are_domainbeds(linear_steps: int, average_start: int) -> None:
    ours, batches = wide(
        with_batch_norm(linear_steps=linear_steps, average_start=average_start), toy_batches(shape=(6,))
    )
    theirs = DomainBeds(ours, linear_steps, average_start)
    for _ in range(5):
        ours.step(batches)
        theirs.step(batches)
        for module, twin in (
            (ours.trained, theirs.network),
            (nn.Sequential(ours.featurizer, ours.classifier), theirs.average),
        ):
            for name, value in twin.state_dict().items():
                if "num_batches_tracked" not in name:
                    torch.testing.assert_close(module.state_dict()[name], value, rtol=0, atol=1e-9)


def test_the_featurizer_stands_still_while_the_head_is_probed() -> None:
    algorithm, batches = toy_algorithm("ermplusplus", shape=(6,), linear_steps=1), toy_batches(shape=(6,))
    moved = []
    for _ in range(4):
        before = [p.clone() for p in algorithm.featurizer.parameters()]
        algorithm.step(batches)
        moved.append(any(not torch.equal(p, q) for p, q in zip(before, algorithm.featurizer.parameters())))
    assert moved == [False, False, True, True]


def test_a_run_too_short_for_a_part_is_told_so_to_the_step() -> None:
    """By default the classifier alone trains in steps 1 to 501, and step 600 is the first to average."""
    method = algorithms.get("ermplusplus")
    idle = {steps: method.idle_parts(method.Config(steps=steps)) for steps in (501, 502, 599, 600)}
    assert [len(sentences) for sentences in idle.values()] == [2, 1, 1, 0]
    assert "training of the featurizer takes effect after 501 steps (`linear_steps`)" in idle[501][0]
    assert "the average takes effect after 599 steps (`average_start`)" in idle[599][0]


def test_the_average_is_the_mean_of_the_weights_since_its_start() -> None:
    algorithm = toy_algorithm("ermplusplus", shape=(6,), linear_steps=0, average_start=3)
    passed = []
    for _ in range(6):
        algorithm.step(toy_batches(shape=(6,)))
        passed.append(algorithm.trained[1].weight.detach().clone())
    torch.testing.assert_close(algorithm.classifier.weight, torch.stack(passed[1:]).mean(0))


def test_training_starts_from_the_weights_that_predict_before_it() -> None:
    """--warmup-head trains the classifier of an algorithm that is made already."""
    algorithm, batches = toy_algorithm("ermplusplus", shape=(6,), lr=1e-6), toy_batches(shape=(6,))
    with torch.no_grad():
        algorithm.classifier.weight += 1
    expected = algorithm.classifier.weight.clone()
    algorithm.step(batches)
    torch.testing.assert_close(algorithm.classifier.weight, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_resumes_around_both_starts(cut: int) -> None:
    assert_resumes_at("ermplusplus", cut, linear_steps=1, average_start=3)
