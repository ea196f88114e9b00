"""Style statistics against numpy, and what restyling must do to them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fgmix.functional.style import instance_statistics, restyle


def test_statistics_are_numpys_mean_and_unbiased_deviation() -> None:
    x = torch.randn(3, 2, 5, 4)
    mu, sigma = instance_statistics(x, eps=1e-3)
    pixels = x.numpy().reshape(3, 2, 20)
    assert mu.shape == sigma.shape == (3, 2, 1, 1)
    np.testing.assert_allclose(mu.numpy()[..., 0, 0], pixels.mean(-1), atol=1e-6)
    np.testing.assert_allclose(sigma.numpy()[..., 0, 0], np.sqrt(pixels.var(-1, ddof=1) + 1e-3), rtol=1e-5)


def test_one_pixel_has_no_spread_and_a_finite_gradient() -> None:
    x = torch.randn(2, 3, 1, 1, requires_grad=True)
    mu, sigma = instance_statistics(x, eps=1e-12)
    torch.testing.assert_close(mu, x)
    torch.testing.assert_close(sigma, torch.full_like(sigma, 1e-6))
    (gradient,) = torch.autograd.grad(sigma.sum(), x)
    assert torch.equal(gradient, torch.zeros_like(x))


def test_constant_maps_have_a_finite_gradient() -> None:
    x = torch.ones(2, 3, 4, 4, requires_grad=True)
    _, sigma = instance_statistics(x, eps=1e-12)
    (gradient,) = torch.autograd.grad(sigma.sum(), x)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_measured_in_float32_and_keeps_its_dtype(dtype: torch.dtype) -> None:
    x = (100 + torch.randn(2, 3, 8, 8)).to(dtype)
    own = instance_statistics(x)
    for found, expected in zip(own, instance_statistics(x.float())):
        assert found.dtype == torch.float32
        assert torch.equal(found, expected)
    assert restyle(x, own, own).dtype == dtype


def test_restyled_maps_have_the_other_style() -> None:
    x, other = torch.randn(4, 3, 6, 6), 2 + 3 * torch.randn(4, 3, 6, 6)
    styles = instance_statistics(x, 0.0), instance_statistics(other, 0.0)
    torch.testing.assert_close(instance_statistics(restyle(x, *styles), 0.0), styles[1], rtol=1e-4, atol=1e-5)


def test_own_style_is_the_identity() -> None:
    x = torch.randn(4, 3, 6, 6)
    own = instance_statistics(x)
    torch.testing.assert_close(restyle(x, own, own), x)
