"""AND-Mask against hand-made numbers and a twin of DomainBed's update."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from algorithms.gradient_twins import assert_same_weights, double_batches, double_pair, plain_adam
from algorithms.toys import linear_algorithm, toy_algorithm, toy_batches
from fgmix.functional.gradients import masked_mean_, sign_agreement

G = torch.tensor([[1.0, 1.0, -1.0, 2.0, 0.0], [1.0, 2.0, 1.0, 2.0, 0.0], [3.0, 1.0, 1.0, 2.0, 0.0]])


def test_only_elements_on_which_all_agree_pass_and_they_are_scaled_up() -> None:
    m = (sign_agreement([[g] for g in G])[0] >= 1).float()
    assert m.tolist() == [1, 1, 0, 1, 0]  # a gradient of exactly zero agrees with nothing
    expected = torch.tensor([2.7778, 2.2222, 0.0, 3.3333, 0.0])
    torch.testing.assert_close(masked_mean_([[g] for g in G.clone()], [m])[0], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("k", "tau"), [(2, 1.0), (3, 1.0), (3, 0.5), (5, 0.6)])
def test_steps_are_domainbeds(k: int, tau: float) -> None:
    andmask, network = double_pair("andmask", n_domains=k, tau=tau, weight_decay=1e-2)
    optimizer = plain_adam(network, weight_decay=1e-2)
    theta = list(network.parameters())
    for step in range(3):
        batches = double_batches(k, seed=step)
        grads = [torch.autograd.grad(cross_entropy(network(x), y), theta) for x, y in batches]
        for p, *g_p in zip(theta, *grads):
            stacked = torch.stack(g_p)
            mask = (stacked.sign().mean(0).abs() >= tau).double()
            p.grad = mask * stacked.mean(0) / (1e-10 + mask.sum() / mask.numel())
        optimizer.step()
        metrics = andmask.step(batches)
        assert_same_weights(andmask, network)
    assert 0 < metrics["passed"] < 1


def test_tau_zero_is_erm() -> None:
    batches = double_batches()
    andmask, _ = double_pair("andmask", tau=0.0)
    erm, _ = double_pair("erm")
    torch.testing.assert_close(andmask.step(batches)["loss"], erm.step(batches)["loss"])
    assert_same_weights(andmask, erm)


def test_a_weight_on_which_domains_disagree_stays() -> None:
    """One input, two classes; the domains label it differently, so every sign is opposed."""
    andmask = linear_algorithm("andmask", d=1, classes=2, n_domains=2)
    before = [p.clone() for p in andmask.parameters()]
    x = torch.ones(1, 1)
    metrics = andmask.step([(x, torch.tensor([0])), (x, torch.tensor([1]))])
    assert metrics["passed"] == 0
    assert all(torch.equal(p, q) for p, q in zip(before, andmask.parameters()))


def test_permuting_domains_changes_nothing() -> None:
    batches = double_batches()
    a, _ = double_pair("andmask")
    b, _ = double_pair("andmask")
    a.step(batches)
    b.step(batches[::-1])
    assert_same_weights(a, b)


def test_batch_of_one_and_of_unequal_sizes() -> None:
    x, y = toy_batches(1)[0]
    metrics = toy_algorithm("andmask", n_domains=2).step([(x[:1], y[:1]), (x, y)])
    assert torch.isfinite(metrics["loss"])
