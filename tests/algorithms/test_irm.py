"""IRM: the closed-form penalty against double differentiation, the schedule against DomainBed's."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from algorithms.properties import assert_order_of_domains_is_irrelevant, assert_resumes_at
from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Batches
from fgmix.algorithms.irm import invariance_penalty
from fgmix.errors import UserError
from reference.twin import Twin, assert_follows


def penalty_by_autograd(o: Tensor, y: Tensor) -> Tensor:
    """The gradient in a dummy scale of the logits, on each half, kept differentiable."""
    w = torch.ones((), dtype=o.dtype, requires_grad=True)
    halves = [torch.autograd.grad(cross_entropy(w * o[i::2], y[i::2]), w, create_graph=True)[0] for i in (0, 1)]
    return halves[0] * halves[1]


def domainbed_step(twin: Twin, batches: Batches, step: int, lam: float, anneal: int) -> None:
    logits = twin.h(twin.g(torch.cat([x for x, _ in batches])))
    risk, penalty, first = 0.0, 0.0, 0
    for _, y in batches:
        o = logits[first : first + len(y)]
        first += len(y)
        risk = risk + cross_entropy(o, y) / len(batches)
        penalty = penalty + penalty_by_autograd(o, y) / len(batches)
    if step == anneal:
        twin.restart()
    twin.descend(risk + (lam if step >= anneal else 1.0) * penalty)


@pytest.mark.parametrize("anneal", [0, 2, 100])
def test_steps_are_domainbed_s_before_at_and_after_the_anneal_step(anneal: int) -> None:
    def step(twin: Twin, batches: Batches, step: int) -> None:
        domainbed_step(twin, batches, step, lam=50.0, anneal=anneal)

    assert_follows("irm", step, steps=4, lam=50.0, anneal=anneal)


@pytest.mark.parametrize("b", [2, 7, 8])
def test_penalty_and_its_gradient_are_those_of_double_differentiation(b: int) -> None:
    o = torch.randn(b, 5, dtype=torch.float64, requires_grad=True)
    y = torch.randint(5, (b,))
    ours, theirs = invariance_penalty(o, y), penalty_by_autograd(o, y)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(torch.autograd.grad(ours, o), torch.autograd.grad(theirs, o))


def test_penalty_is_computed_in_float32_from_half_precision_logits() -> None:
    """The gradient is a difference of numbers near 100, of which bfloat16 keeps units."""
    o, y = (torch.randn(8, 5) + 100).bfloat16(), torch.randint(5, (8,))
    torch.testing.assert_close(invariance_penalty(o, y), penalty_by_autograd(o.float(), y), rtol=1e-3, atol=1e-4)


def test_adam_forgets_at_the_anneal_step_and_only_there() -> None:
    irm, batches = toy_algorithm("irm", shape=(6,), anneal=2), toy_batches(shape=(6,))
    steps_of_adam = []
    for _ in range(4):
        irm.step(batches)
        steps_of_adam.append(int(irm.optimizer.state[irm.classifier.weight]["step"]))
    assert steps_of_adam == [1, 2, 1, 2]


@pytest.mark.parametrize("cut", [2, 3, 4])
def test_resumes_before_at_and_after_the_anneal_step(cut: int) -> None:
    assert_resumes_at("irm", cut, anneal=3)


def test_order_of_domains_is_irrelevant() -> None:
    assert_order_of_domains_is_irrelevant("irm", anneal=0)


def test_batches_of_one_are_refused() -> None:
    with pytest.raises(UserError, match="at least 2 samples"):
        toy_algorithm("irm", shape=(6,)).step(toy_batches(b=1, shape=(6,)))
