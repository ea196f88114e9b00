"""V-REx against DomainBed's update written out, across its anneal step."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from algorithms.properties import (
    assert_order_of_domains_is_irrelevant,
    assert_resumes_at,
)
from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Batches
from reference.twin import Twin, assert_follows


def domainbed_step(twin: Twin, batches: Batches, step: int, lam: float, anneal: int) -> None:
    losses = [cross_entropy(twin.h(twin.g(x)), y) for x, y in batches]
    mean = sum(losses) / len(losses)
    spread = sum((loss - mean) ** 2 for loss in losses) / len(losses)
    if step == anneal:
        twin.restart()
    twin.descend(mean + (lam if step >= anneal else 1.0) * spread)


@pytest.mark.parametrize("anneal", [0, 2, 100])
def test_steps_are_domainbed_s_before_at_and_after_the_anneal_step(anneal: int) -> None:
    def step(twin: Twin, batches: Batches, step: int) -> None:
        domainbed_step(twin, batches, step, lam=50.0, anneal=anneal)

    assert_follows("vrex", step, steps=4, lam=50.0, anneal=anneal)


@pytest.mark.parametrize("cut", [2, 3, 4])
def test_resumes_before_at_and_after_the_anneal_step(cut: int) -> None:
    assert_resumes_at("vrex", cut, anneal=3)


def test_adam_forgets_at_the_anneal_step_and_only_there() -> None:
    vrex, batches = toy_algorithm("vrex", shape=(6,), anneal=2), toy_batches(shape=(6,))
    steps_of_adam = []
    for _ in range(4):
        vrex.step(batches)
        steps_of_adam.append(int(vrex.optimizer.state[vrex.classifier.weight]["step"]))
    assert steps_of_adam == [1, 2, 1, 2]


def test_equal_risks_have_no_variance() -> None:
    metrics = toy_algorithm("vrex", shape=(6,), anneal=0).step(toy_batches(1, shape=(6,)) * 3)
    torch.testing.assert_close(metrics["variance"], torch.zeros(()), rtol=0, atol=1e-12)


def test_order_of_domains_is_irrelevant() -> None:
    assert_order_of_domains_is_irrelevant("vrex", anneal=0)


def test_batches_of_one_train() -> None:
    assert toy_algorithm("vrex", shape=(6,)).step(toy_batches(b=1, shape=(6,)))["variance"] > 0
