"""The measurement of the policy step, at sizes that take no time; the targets themselves in `make test-long`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fgmix.timing.literal import LiteralPolicy
from fgmix.timing.policy import SIZES, PolicyCost, Size, measure_policy, peak_memory


def test_the_literal_step_updates_policy_and_discriminator() -> None:
    classifier, z = nn.Linear(8, 3), torch.randn(5, 2, 8)
    policy = LiteralPolicy(27, 8)
    before = {name: p.clone() for name, p in policy.named_parameters()}
    policy.step(classifier, z, torch.arange(5) % 3, 10, torch.randn(5, 8))
    still = [name for name, p in policy.named_parameters() if torch.equal(p, before[name])]
    assert set(still) <= {"A.4.bias"}  # adds the same to every score, so its gradient is zero


def test_ratios_are_of_the_medians() -> None:
    cost = PolicyCost(Size(8, 3, 2), fast=2.0, literal=10.0, fast_memory=1.0, literal_memory=4.0)
    assert (cost.speed_up, cost.memory_share) == (5.0, 0.25)


def test_measuring_small_sizes() -> None:
    (cost,) = measure_policy([Size(8, 3, 2)], rounds=1, memory=False)
    assert cost.size == Size(8, 3, 2)
    assert min(cost.fast, cost.literal) > 0


@pytest.mark.long
def test_targets_of_speed_and_memory() -> None:
    """≥ 2× at 7 classes, ≥ 8× at 65; at 345 a third of the memory (the literal step there: 10 GB)."""
    small, medium = measure_policy(SIZES[:2], memory=False)
    assert small.speed_up >= 2
    assert medium.speed_up >= 8
    assert peak_memory("fast", SIZES[2]) <= peak_memory("literal", SIZES[2]) / 3
