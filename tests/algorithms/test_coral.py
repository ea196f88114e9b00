"""CORAL against DomainBed's update written out, and what it must not depend on."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from algorithms.properties import assert_order_of_domains_is_irrelevant
from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Batches
from fgmix.errors import UserError
from reference.twin import Twin, assert_follows


def domainbed_step(twin: Twin, batches: Batches, gamma: float) -> None:
    """One forward pass a domain; moments of both sides for each pair."""
    codes = [twin.g(x) for x, _ in batches]
    objective = sum(cross_entropy(twin.h(z), y) for z, (_, y) in zip(codes, batches)) / len(batches)
    penalties = []
    for i in range(len(codes)):
        for j in range(i):
            means = codes[i].mean(0) - codes[j].mean(0)
            covariances = torch.cov(codes[i].T) - torch.cov(codes[j].T)
            penalties.append(means.pow(2).mean() + covariances.pow(2).mean())
    twin.descend(objective + gamma * sum(penalties) / len(penalties))


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("gamma", [1.0, 7.0])
def test_steps_are_domainbed_s(gamma: float, batch_norm: bool) -> None:
    def step(twin: Twin, batches: Batches, _: int) -> None:
        domainbed_step(twin, batches, gamma)

    assert_follows("coral", step, gamma=gamma, batch_norm=batch_norm)


def test_steps_are_domainbed_s_on_images() -> None:
    assert_follows(
        "coral", lambda twin, batches, _: domainbed_step(twin, batches, 1.0), shape=(3, 16, 16), steps=2, per_domain=4
    )


def test_identical_domains_have_no_gap() -> None:
    batches = toy_batches(1, shape=(6,)) * 3
    metrics = toy_algorithm("coral", shape=(6,)).step(batches)
    assert metrics["gap"] < 1e-14
    assert metrics["loss"] == metrics["risk"]


def test_order_of_domains_is_irrelevant() -> None:
    assert_order_of_domains_is_irrelevant("coral")


def test_batches_of_one_are_refused() -> None:
    with pytest.raises(UserError, match="at least 2 samples"):
        toy_algorithm("coral", shape=(6,)).step(toy_batches(b=1, shape=(6,)))
