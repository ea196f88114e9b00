"""SAND-Mask against hand-made numbers and a twin of DomainBed's update."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from algorithms.gradient_twins import assert_same_weights, double_batches, double_pair, plain_adam
from algorithms.toys import toy_algorithm
from fgmix.algorithms.sandmask import soft_mask
from fgmix.functional.gradients import masked_mean_

G = torch.tensor([[1.0, 1.0, -1.0, 2.0, 0.0], [1.0, 2.0, 1.0, 2.0, 0.0], [3.0, 1.0, 1.0, 2.0, 0.0]])


def test_mask_and_gradient_of_a_worked_example() -> None:
    (m,) = soft_mask([[g] for g in G], tau=0.5, kappa=10.0)
    torch.testing.assert_close(m, torch.tensor([0.9989, 1.0, 0.0, 1.0, 0.0]), atol=1e-4, rtol=0)
    expected = torch.tensor([2.7757, 2.2230, 0.0, 3.3346, 0.0])
    torch.testing.assert_close(masked_mean_([[g] for g in G.clone()], [m])[0], expected, atol=1e-4, rtol=0)


def test_at_tau_one_nothing_but_a_trace_passes() -> None:
    """The trace: where all agree and have no variance the mask is 0/0, counted as 1e-17 against the 1e-10 below."""
    m = soft_mask([[g] for g in G], tau=1.0, kappa=10.0)
    (gradient,) = masked_mean_([[g] for g in G.clone()], m)
    torch.testing.assert_close(gradient, torch.tensor([0.0, 0.0, 0.0, 2e-7, 0.0]), atol=1e-12, rtol=1e-4)


@pytest.mark.parametrize(("k", "tau", "kappa"), [(2, 0.5, 10.0), (3, 0.5, 1e-3), (3, 1.0, 10.0), (5, 0.3, 1e-5)])
def test_steps_are_domainbeds(k: int, tau: float, kappa: float) -> None:
    sandmask, network = double_pair("sandmask", n_domains=k, tau=tau, kappa=kappa)
    optimizer = plain_adam(network)
    theta = list(network.parameters())
    for step in range(3):
        batches = double_batches(k, seed=step)
        grads = [torch.autograd.grad(cross_entropy(network(x), y), theta) for x, y in batches]
        for p, *g_p in zip(theta, *grads):
            stacked = torch.stack(g_p)
            precision = stacked.var(0).pow(-1)
            mask = torch.tanh(kappa * precision * (stacked.sign().mean(0).abs() - tau))
            mask = torch.where(mask.isnan(), 1e-17, torch.maximum(mask, torch.zeros(())))
            p.grad = mask * stacked.mean(0) / (1e-10 + mask.sum() / mask.numel())
        optimizer.step()
        sandmask.step(batches)
        assert_same_weights(sandmask, network)


def test_equal_signs_pass_the_more_the_less_they_vary() -> None:
    close, far = torch.tensor([1.0, 1.1]), torch.tensor([1.0, 3.0])
    (m,) = soft_mask([[torch.stack([close[0], far[0]])], [torch.stack([close[1], far[1]])]], tau=0.5, kappa=0.1)
    variance = torch.stack([close.var(), far.var()])
    torch.testing.assert_close(m, torch.tanh(0.1 * 0.5 / variance))
    assert m[0] > m[1]


def test_the_default_learns() -> None:
    sandmask = toy_algorithm("sandmask", shape=(6,))
    batches = [(x.float(), y) for x, y in double_batches()]
    losses = [sandmask.step(batches)["loss"].item() for _ in range(20)]
    assert losses[-1] < 0.8 * losses[0]


def test_permuting_domains_changes_nothing() -> None:
    batches = double_batches()
    a, _ = double_pair("sandmask")
    b, _ = double_pair("sandmask")
    a.step(batches)
    b.step(batches[::-1])
    assert_same_weights(a, b)
