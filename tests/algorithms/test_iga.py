"""IGA against the gradients of every domain flattened to one vector, with the gradient of the mean risk as constant."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from algorithms.properties import assert_order_of_domains_is_irrelevant
from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Batches
from reference.twin import Twin, assert_follows


def flat_gradient(twin: Twin, loss: Tensor, keep: bool) -> Tensor:
    parameters = [*twin.g.parameters(), *twin.h.parameters()]
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, create_graph=keep)])


@pytest.mark.parametrize("lam", [1.0, 1000.0])
def test_steps_are_domainbeds(lam: float) -> None:
    def step(twin: Twin, batches: Batches, _: int) -> None:
        constant = flat_gradient(twin, sum(cross_entropy(twin.h(twin.g(x)), y) for x, y in batches) / 3, keep=False)
        risks = [cross_entropy(twin.h(twin.g(x)), y) for x, y in batches]
        penalty = sum((flat_gradient(twin, risk, keep=True) - constant).pow(2).sum() for risk in risks)
        twin.descend(sum(risks) / 3 + lam * penalty)

    assert_follows("iga", step, steps=5, lam=lam)


def test_equal_domains_have_no_penalty() -> None:
    metrics = toy_algorithm("iga", shape=(6,)).step(toy_batches(1, shape=(6,)) * 3)
    assert metrics["penalty"] < 1e-12


def test_order_of_domains_is_irrelevant() -> None:
    assert_order_of_domains_is_irrelevant("iga", lam=1.0)


@pytest.mark.parametrize("k", [2, 6])
def test_every_domain_has_two_backward_passes(k: int) -> None:
    """A joint node of the risks would send zeros through the passes of all other domains."""
    algorithm, passes = toy_algorithm("iga", n_domains=k, shape=(6,)), []
    algorithm.featurizer.register_forward_hook(lambda _, __, z: z.register_hook(passes.append) and None)
    algorithm.step(toy_batches(k, shape=(6,)))
    assert len(passes) == 2 * k
