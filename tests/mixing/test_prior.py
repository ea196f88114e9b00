"""Moving Gaussian and discriminator."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import logsigmoid

from fgmix.mixing import Discriminator, Prior
from fgmix.mixing.prior import sample_gaussian


def test_averages_follow_the_recursion() -> None:
    """Equal weights for the first ten batches, then 0.1 for each new one; variances are biased."""
    batches = [torch.randn(7, 3) * (1 + t) + t for t in range(14)]
    prior = Prior(3)
    for z in batches:
        prior.observe(z)

    means, variances = (
        torch.stack(rows).double() for rows in zip(*((z.mean(0), z.var(0, correction=0)) for z in batches))
    )
    mean, var = means[:10].mean(0), variances[:10].mean(0)
    for t in range(10, 14):
        mean, var = 0.9 * mean + 0.1 * means[t], 0.9 * var + 0.1 * variances[t]
    torch.testing.assert_close(prior.mean.double(), mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(prior.var.double(), var, rtol=1e-5, atol=1e-6)


def test_averages_are_state() -> None:
    prior, copy = Prior(3), Prior(3)
    prior.observe(torch.randn(5, 3))
    copy.load_state_dict(prior.state_dict())
    z = torch.randn(5, 3)
    prior.observe(z)
    copy.observe(z)
    assert all(torch.equal(a, b) for a, b in zip(prior.buffers(), copy.buffers()))


def test_observing_keeps_no_graph_and_takes_any_precision() -> None:
    prior = Prior(3)
    prior.observe(torch.randn(5, 3, requires_grad=True).bfloat16())
    assert not prior.mean.requires_grad
    assert prior.mean.dtype == torch.float32


def test_samples_have_the_gaussian_s_moments() -> None:
    """Five standard errors at 40,000 samples: σ/√n for the mean, σ²√(2/n) for the variance."""
    prior = Prior(2)
    prior.mean.copy_(torch.tensor([3.0, -1.0]))
    prior.var.copy_(torch.tensor([4.0, 0.25]))
    z = sample_gaussian(prior.averages(), 40_000, torch.Generator().manual_seed(0))
    assert z.mean(0).tolist() == pytest.approx([3.0, -1.0], abs=5 * 2 / 200)
    assert z.var(0).tolist() == pytest.approx([4.0, 0.25], rel=5 * math.sqrt(2) / 200)
    assert torch.cov(z.T)[0, 1].abs() <= 5 * 1.0 / 200


def test_losses_are_the_logarithms_of_probabilities() -> None:
    d = Discriminator(4)
    real, fake = torch.randn(8, 4), torch.randn(8, 4)
    p_real, p_fake = (torch.sigmoid(d.second(torch.relu(d.first(z)))) for z in (real, fake))
    adv, disc, _, _ = d.losses(real, fake, 0.3)
    torch.testing.assert_close(adv, (1 - p_fake).log().mean())
    torch.testing.assert_close(disc, -0.3 * (p_real.log().mean() + (1 - p_fake).log().mean()))


def test_each_loss_reaches_its_own_side_only() -> None:
    d = Discriminator(4)
    z_mix = torch.randn(8, 4, requires_grad=True)
    z_prior = torch.randn(8, 4)
    adv, disc, gradient, pull = d.losses(z_prior, z_mix, 0.3)
    assert not adv.requires_grad
    assert not disc.requires_grad
    literal = torch.log(1 - torch.sigmoid(d(z_mix))).mean()
    torch.testing.assert_close(gradient / -0.3, torch.autograd.grad(literal, z_mix)[0])
    literal = -0.3 * (logsigmoid(d(z_prior)) + logsigmoid(-d(z_mix.detach()))).mean()
    expected = torch.autograd.grad(2 * literal, list(d.parameters()))
    torch.testing.assert_close(tuple(pull(torch.tensor(2.0))), expected)


@pytest.mark.parametrize("odds", [-1e4, 1e4])
def test_a_saturated_discriminator_is_finite(odds: float) -> None:
    d = Discriminator(4)
    with torch.no_grad():
        d.second.bias.fill_(odds)
    z_mix = torch.randn(8, 4, requires_grad=True)
    adv, disc, gradient, pull = d.losses(torch.randn(8, 4), z_mix)
    assert torch.isfinite(adv)
    assert torch.isfinite(disc)
    gradients = [gradient, *pull(torch.tensor(1.0))]
    assert all(torch.isfinite(g).all() for g in gradients)
