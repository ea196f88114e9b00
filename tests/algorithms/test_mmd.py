"""MMD against DomainBed's update written out, and what it must not depend on."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from algorithms.properties import assert_order_of_domains_is_irrelevant
from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Batches
from reference.twin import Twin, assert_follows


def kernel_mean(a: Tensor, b: Tensor) -> Tensor:
    """Expanded squares, seven bandwidths one after the other, as DomainBed computes them."""
    squares = (a * a).sum(1)[:, None] + (b * b).sum(1)[None] - 2 * a @ b.T
    squares = squares.clamp(min=1e-30)
    return sum((squares * -(10.0**power)).exp() for power in range(-3, 4)).mean()


def domainbed_step(twin: Twin, batches: Batches, gamma: float) -> None:
    codes = [twin.g(x) for x, _ in batches]
    objective = sum(cross_entropy(twin.h(z), y) for z, (_, y) in zip(codes, batches)) / len(batches)
    penalty, pairs = torch.zeros(()), 0
    for i, a in enumerate(codes):
        for b in codes[i + 1 :]:
            penalty = penalty + kernel_mean(a, a) + kernel_mean(b, b) - 2 * kernel_mean(a, b)
            pairs += 1
    twin.descend(objective + gamma * penalty / pairs)


@pytest.mark.parametrize("gamma", [1.0, 7.0])
def test_steps_are_domainbed_s(gamma: float) -> None:
    for batch_norm in (False, True):
        assert_follows(
            "mmd",
            lambda twin, batches, _: domainbed_step(twin, batches, gamma),
            gamma=gamma,
            batch_norm=batch_norm,
        )


def test_identical_domains_have_no_gap() -> None:
    metrics = toy_algorithm("mmd", shape=(6,)).step(toy_batches(1, shape=(6,)) * 3)
    assert abs(metrics["gap"]) < 1e-6  # of terms that are 7/b


def test_order_of_domains_is_irrelevant() -> None:
    assert_order_of_domains_is_irrelevant("mmd")


def test_batches_of_one_train() -> None:
    metrics = toy_algorithm("mmd", shape=(6,)).step(toy_batches(b=1, shape=(6,)))
    assert metrics["gap"] > 0
