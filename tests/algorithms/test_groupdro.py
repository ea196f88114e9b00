"""GroupDRO against DomainBed's update written out; its weights are state."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from algorithms.properties import (
    assert_order_of_domains_is_irrelevant,
    assert_resumes_at,
)
from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Batches
from fgmix.algorithms.groupdro import reweight
from reference.twin import Twin, assert_follows


@pytest.mark.parametrize("batch_norm", [False, True])
def test_steps_are_domainbed_s(batch_norm: bool) -> None:
    eta, q = 0.5, [1.0, 1.0, 1.0]

    def step(twin: Twin, batches: Batches, _: int) -> None:
        losses = [cross_entropy(twin.h(twin.g(x)), y) for x, y in batches]
        for e, loss in enumerate(losses):
            q[e] *= math.exp(eta * loss.item())
        total = sum(q)
        q[:] = [weight / total for weight in q]
        twin.descend(sum(weight * loss for weight, loss in zip(q, losses)))

    assert_follows("groupdro", step, steps=4, eta=eta, batch_norm=batch_norm)


def test_weights_by_hand() -> None:
    """q ∝ (0.2·e^{0.1·1}, 0.8·e^{0.1·3})."""
    a, b = 0.2 * math.exp(0.1), 0.8 * math.exp(0.3)
    q = reweight(torch.tensor([0.2, 0.8]), torch.tensor([1.0, 3.0]), eta=0.1)
    torch.testing.assert_close(q, torch.tensor([a / (a + b), b / (a + b)]))


def test_a_huge_risk_takes_all_the_weight_instead_of_overflowing() -> None:
    q = reweight(torch.tensor([0.5, 0.5]), torch.tensor([1e4, 1.0]), eta=1.0)
    torch.testing.assert_close(q, torch.tensor([1.0, 0.0]))


def test_weights_follow_the_domain_not_its_place() -> None:
    batches = toy_batches(shape=(6,))
    a, b = (toy_algorithm("groupdro", shape=(6,), eta=1.0) for _ in range(2))
    a.step(batches)
    b.step(batches[::-1])
    torch.testing.assert_close(a.q, b.q.flip(0))
    assert a.q.max() > a.q.min()
    assert a.q.sum().item() == pytest.approx(1)


def test_order_of_domains_is_irrelevant() -> None:
    assert_order_of_domains_is_irrelevant("groupdro", eta=1.0)


def test_weights_survive_an_interruption() -> None:
    assert_resumes_at("groupdro", cut=3, eta=1.0)


def test_batches_of_one_train() -> None:
    metrics = toy_algorithm("groupdro", shape=(6,)).step(toy_batches(b=1, shape=(6,)))
    assert metrics["worst"] > metrics["risk"]
