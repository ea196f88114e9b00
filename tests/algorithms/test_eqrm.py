"""EQRM against DomainBed's kernel density estimate and bisection on numbers of Python."""

from __future__ import annotations

from statistics import NormalDist

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from algorithms.properties import assert_order_of_domains_is_irrelevant, assert_resumes_at
from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Batches
from fgmix.algorithms.eqrm import EQRM, kernel_quantile
from reference.twin import Twin, assert_follows


def quantile_by_hand(risks: Tensor, alpha: float) -> Tensor:
    """Bisection between the quantiles of the outermost kernels: the end points carry the gradient."""
    ordered = risks.sort().values
    bandwidth = 1.06 * ordered.std() * len(ordered) ** (-0.2)
    ends = [ordered[i] + bandwidth * NormalDist().inv_cdf(alpha) for i in (0, -1)]
    for _ in range(32):
        middle = (ends[0] + ends[1]) / 2
        reached = sum(NormalDist(r.item(), bandwidth.item()).cdf(middle.item()) for r in ordered) / len(ordered)
        ends[1 if reached > alpha else 0] = middle
    return (ends[0] + ends[1]) / 2


def descend_as_domainbed(twin: Twin, batches: Batches, step: int, alpha: float, burn_in: float) -> None:
    risks = torch.stack([cross_entropy(twin.h(twin.g(x)), y) for x, y in batches])
    if step == burn_in:
        twin.restart(lr=5e-3)
    twin.descend(risks.mean() if step < burn_in else quantile_by_hand(risks, alpha))


@pytest.mark.parametrize("burn_in", [0.0, 2.0, 2.5, 100.0])
def test_steps_are_domainbeds_and_adam_restarts_at_whole_numbers_alone(burn_in: float) -> None:
    def step(twin: Twin, batches: Batches, step: int) -> None:
        descend_as_domainbed(twin, batches, step, 0.8, burn_in)

    assert_follows("eqrm", step, steps=5, quantile=0.8, burn_in=burn_in, lr_after=5e-3)
    assert_follows("eqrm", step, steps=5, quantile=0.8, burn_in=burn_in, lr_after=5e-3, batch_norm=True)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 0.75, 0.99])
@pytest.mark.parametrize("k", [2, 5])
def test_the_quantile_and_its_gradient(alpha: float, k: int) -> None:
    L = torch.rand(k, dtype=torch.float64, requires_grad=True)
    ours, theirs = kernel_quantile(L, alpha), quantile_by_hand(L, alpha)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(torch.autograd.grad(ours, L), torch.autograd.grad(theirs, L))
    bandwidth = 1.06 * L.std().item() * k**-0.2
    reached = sum(NormalDist(r.item(), bandwidth).cdf(ours.item()) for r in L) / k
    assert reached == pytest.approx(alpha, abs=1e-8)


def test_equal_risks_are_their_own_quantile() -> None:
    L = torch.full((3,), 2.0, requires_grad=True)
    quantile = kernel_quantile(L, 0.9)
    assert quantile.item() == pytest.approx(2)
    (gradient,) = torch.autograd.grad(quantile, L)
    assert gradient.sum().item() == pytest.approx(1)


@pytest.mark.parametrize("cut", [2, 3, 4])
def test_resumes_before_at_and_after_the_burn_in(cut: int) -> None:
    """The learning rate after it is part of the optimiser's state."""
    assert_resumes_at("eqrm", cut, burn_in=3.0, lr_after=1e-2)


def test_order_of_domains_is_irrelevant() -> None:
    assert_order_of_domains_is_irrelevant("eqrm", burn_in=0.0)


def test_the_learning_rate_changes_at_the_end_of_the_burn_in() -> None:
    eqrm, batches, rates = toy_algorithm("eqrm", shape=(6,), burn_in=2.0, lr_after=1e-6), toy_batches(shape=(6,)), []
    for _ in range(4):
        eqrm.step(batches)
        rates.append(eqrm.optimizer.param_groups[0]["lr"])
    assert rates == [1e-3, 1e-3, 1e-6, 1e-6]


def test_a_burn_in_that_is_no_whole_number_lasts_to_the_next_one() -> None:
    config = EQRM.Config
    assert [len(EQRM.idle_parts(config(steps=steps, burn_in=9.5))) for steps in (10, 11)] == [1, 0]
