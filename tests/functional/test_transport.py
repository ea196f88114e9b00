"""Sinkhorn's plan against closed forms, a naive twin, exact assignment and the envelope theorem."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from fgmix.errors import UserError
from fgmix.functional.transport import cosine_cost, energy_distance, sinkhorn_plan, transport_cost


def naive_plan(cost: np.ndarray, eps: float, iterations: int) -> np.ndarray:
    """Sinkhorn in the linear domain, one entry at a time: P = diag(p) K diag(q)."""
    n, m = cost.shape
    kernel = np.exp(-cost / eps)
    p, q = np.ones(n), np.ones(m)
    for _ in range(iterations):
        for i in range(n):
            p[i] = (1 / n) / sum(kernel[i, j] * q[j] for j in range(m))
        for j in range(m):
            q[j] = (1 / m) / sum(kernel[i, j] * p[i] for i in range(n))
    return p[:, None] * kernel * q


@pytest.mark.parametrize(("n", "eps"), [(2, 1.0), (3, 0.5), (5, 0.05)])
def test_one_minus_identity_has_its_closed_form_after_one_iteration(n: int, eps: float) -> None:
    cost = 1 - torch.eye(n, dtype=torch.float64)
    q = (n - 1) * math.exp(-1 / eps)
    assert (sinkhorn_plan(cost, eps, 1) * cost).sum().item() == pytest.approx(q / (1 + q), rel=1e-12)


def test_the_closed_form_for_two() -> None:
    cost = 1 - torch.eye(2)
    assert (sinkhorn_plan(cost, 1.0, 1) * cost).sum().item() == pytest.approx(0.268941, abs=1e-6)


def test_plan_is_the_naive_twins() -> None:
    cost = torch.rand(4, 6, dtype=torch.float64)
    expected = naive_plan(cost.numpy(), eps=0.1, iterations=7)
    np.testing.assert_allclose(sinkhorn_plan(cost, 0.1, 7).numpy(), expected, rtol=1e-10)


def test_default_iterations_give_uniform_marginals() -> None:
    codes = torch.rand(32, 64, dtype=torch.float64), torch.rand(32, 64, dtype=torch.float64)
    plan = sinkhorn_plan(cosine_cost(*codes))
    torch.testing.assert_close(plan.sum(0), torch.full((32,), 1 / 32, dtype=torch.float64), rtol=1e-12, atol=0)
    assert (plan.sum(1) - 1 / 32).abs().sum() < 1e-6


def test_little_entropy_leaves_the_exact_assignment() -> None:
    cost = torch.rand(6, 6, dtype=torch.float64)
    rows, columns = linear_sum_assignment(cost.numpy())
    exact = cost[rows, columns].mean().item()
    assert (sinkhorn_plan(cost, 0.002, 5000) * cost).sum().item() == pytest.approx(exact, abs=1e-3)


def test_plan_is_the_gradient_of_the_regularised_optimum() -> None:
    """∂/∂c min_P ⟨P, c⟩ − ε·H(P) = P, by central differences: why the plan may be a constant."""
    cost, eps, h = torch.rand(3, 3, dtype=torch.float64), 0.2, 1e-5

    def optimum(c: torch.Tensor) -> float:
        plan = sinkhorn_plan(c, eps, 500)
        return ((plan * c).sum() + eps * (plan * plan.log()).sum()).item()

    plan = sinkhorn_plan(cost, eps, 500)
    for i in range(3):
        for j in range(3):
            bump = torch.zeros_like(cost)
            bump[i, j] = h
            slope = (optimum(cost + bump) - optimum(cost - bump)) / (2 * h)
            assert slope == pytest.approx(plan[i, j].item(), abs=1e-7)


def test_opposite_unit_vectors() -> None:
    e1 = torch.tensor([[1.0, 0.0]]).repeat(4, 1)
    assert transport_cost(e1, -e1).item() == pytest.approx(2)
    assert energy_distance(e1, -e1).item() == pytest.approx(4)


@pytest.mark.parametrize(("n", "m"), [(8, 8), (7, 7), (2, 2), (9, 4)])
def test_energy_distance_by_hand(n: int, m: int) -> None:
    a, b = torch.randn(n, 5, dtype=torch.float64), torch.randn(m, 5, dtype=torch.float64)

    def w(p: torch.Tensor, q: torch.Tensor) -> float:
        cost = cosine_cost(p, q)
        return float((naive_plan(cost.numpy(), 0.05, 20) * cost.numpy()).sum())

    half_a, half_b = (n + 1) // 2, (m + 1) // 2
    a_1, a_2, b_1, b_2 = a[:half_a], a[half_a:], b[:half_b], b[half_b:]
    expected = w(a_1, b_2) + w(b_1, a_2) - w(a_1, a_2) - w(b_1, b_2)
    assert energy_distance(a, b).item() == pytest.approx(expected, abs=1e-8)


def test_a_batch_that_nothing_was_done_to_is_at_no_distance() -> None:
    """A generator that returns its input: exactly zero, because no half meets its own copies."""
    x = torch.randn(8, 5)
    assert energy_distance(x, x).item() == 0
    assert transport_cost(x, x).item() > 0


def test_equal_distributions_have_distance_zero_on_average() -> None:
    """Over 400 pairs of independent batches, within 5 standard errors. W of a batch with itself is far below that of
    two batches, so that 2·W(a, b) − W(a, a) − W(b, b) is positive for equal distributions."""
    a, b = torch.randn(2, 400, 8, 16)
    d = energy_distance(a, b)
    assert d.mean().abs() < 5 * d.std() / 20
    with_itself = 2 * transport_cost(a, b) - transport_cost(a, a) - transport_cost(b, b)
    assert with_itself.mean() > 50 * with_itself.std() / 20


def test_spread_alone_is_not_rewarded() -> None:
    """Two pairs of equal distributions, narrow and wide: plain W tells them apart, the energy distance does not."""
    centre = torch.ones(16)
    narrow, wide = (centre + scale * torch.randn(2, 400, 8, 16) for scale in (0.1, 3.0))
    assert transport_cost(*wide).mean() > 10 * transport_cost(*narrow).mean()
    for a, b in (narrow, wide):
        d = energy_distance(a, b)
        assert d.mean().abs() < 5 * d.std() / 20


def test_halves_need_two_samples() -> None:
    with pytest.raises(UserError, match=r"at least 2 samples of each domain\. Found 1"):
        energy_distance(torch.randn(1, 4), torch.randn(3, 4))


def test_gradient_flows_through_the_cost_with_the_plan_held() -> None:
    a, b = torch.randn(5, 3, dtype=torch.float64).float().requires_grad_(), torch.randn(7, 3)
    (gradient,) = torch.autograd.grad(transport_cost(a, b), a)
    plan = sinkhorn_plan(cosine_cost(a, b))
    (expected,) = torch.autograd.grad((plan * cosine_cost(a, b)).sum(), a)
    torch.testing.assert_close(gradient, expected)
    assert not plan.requires_grad


def test_batched_problems_are_independent() -> None:
    a, b = torch.randn(3, 5, 4), torch.randn(3, 6, 4)
    together = energy_distance(a, b)
    one_by_one = torch.stack([energy_distance(a_e, b_e) for a_e, b_e in zip(a, b)])
    torch.testing.assert_close(together, one_by_one)


def test_autocast_does_not_reach_it() -> None:
    a, b = torch.randn(5, 4), torch.randn(5, 4)
    expected = energy_distance(a, b)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(energy_distance(a, b), expected)


def test_dead_codes_and_halves_of_one_stay_finite() -> None:
    zero = torch.zeros(2, 4, requires_grad=True)
    d = energy_distance(zero, torch.randn(2, 4))
    d.backward()
    assert torch.isfinite(d)
    assert torch.isfinite(zero.grad).all()
