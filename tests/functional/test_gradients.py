"""Gradients per domain against autograd on each domain alone; agreement and masked mean against hand-made numbers."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from algorithms.toys import toy_batches
from fgmix.functional.gradients import domain_gradients, masked_mean_, sign_agreement


def test_each_domain_has_its_own_risk_and_gradient() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    theta = list(net.parameters())
    batches = toy_batches(3, b=6, shape=(5,), classes=3)

    L, g = domain_gradients(net, batches, theta)

    assert not L.requires_grad
    for (x, y), L_e, g_e in zip(batches, L, g):
        risk = cross_entropy(net(x), y)
        torch.testing.assert_close(L_e, risk.detach())
        torch.testing.assert_close(g_e, list(torch.autograd.grad(risk, theta)))


def test_a_parameter_out_of_reach_has_gradient_zero() -> None:
    used, unused = nn.Linear(5, 3), nn.Linear(2, 2)
    _, g = domain_gradients(used, toy_batches(2, shape=(5,), classes=3), [*used.parameters(), *unused.parameters()])
    assert g[1][2].shape == (2, 2)
    assert not g[1][2].any()


def test_gradients_are_laid_out_as_their_parameters() -> None:
    """The fused Adam reads parameter and gradient as flat memory."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net = net.to(memory_format=torch.channels_last)
    theta = list(net.parameters())
    assert not theta[0].is_contiguous()
    _, g = domain_gradients(net, toy_batches(2, classes=3), theta)  # inputs in the usual layout
    for g_e in g:
        assert [t.stride() for t in g_e] == [p.stride() for p in theta]


def test_agreement_counts_signs_and_a_zero_abstains() -> None:
    g = [torch.tensor([1.0, 1.0, -1.0, 0.0, 0.0]), torch.tensor([2.0, -1.0, -3.0, 5.0, 0.0]), torch.ones(5)]
    torch.testing.assert_close(sign_agreement([[g_e] for g_e in g])[0], torch.tensor([3, 1, 1, 2, 1]) / 3)
    assert g[0].tolist() == [1.0, 1.0, -1.0, 0.0, 0.0]  # the gradients themselves are left alone


def test_full_mask_is_the_mean_and_a_closed_one_is_zero() -> None:
    g = [[torch.tensor([1.0, -2.0]), torch.tensor(1.0)], [torch.tensor([3.0, 4.0]), torch.tensor(2.0)]]
    opened, closed = masked_mean_(g, [torch.ones(2), torch.zeros(())])
    torch.testing.assert_close(opened, torch.tensor([2.0, 1.0]))
    assert closed == 0
