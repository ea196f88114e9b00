"""Mean, covariance and their distance against numpy."""

import numpy as np
import pytest
import torch

from fgmix.errors import UserError
from fgmix.functional.moments import moment_distance, moments


def test_moments_are_numpy_s() -> None:
    z = torch.randn(7, 4, dtype=torch.float64)
    mu, C = moments(z)
    np.testing.assert_allclose(mu, z.numpy().mean(0))
    np.testing.assert_allclose(C, np.cov(z.numpy(), rowvar=False))


def test_distance_is_the_mean_square_of_both_differences() -> None:
    a, b = torch.randn(7, 4, dtype=torch.float64), 2 * torch.randn(9, 4, dtype=torch.float64) + 1
    expected = np.mean((a.numpy().mean(0) - b.numpy().mean(0)) ** 2) + np.mean(
        (np.cov(a.numpy(), rowvar=False) - np.cov(b.numpy(), rowvar=False)) ** 2
    )
    np.testing.assert_allclose(moment_distance(moments(a), moments(b)), expected)


def test_distance_ignores_the_order_of_instances_and_of_samples() -> None:
    a, b = torch.randn(6, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    straight = moment_distance(moments(a), moments(b))
    torch.testing.assert_close(straight, moment_distance(moments(b.flip(0)), moments(a.flip(0))))


def test_autocast_does_not_cost_digits() -> None:
    z = torch.randn(32, 8) + 100
    with torch.autocast("cpu", torch.bfloat16):
        _, C = moments(z)
    torch.testing.assert_close(C, moments(z)[1])


def test_half_precision_codes_are_widened() -> None:
    z = torch.randn(32, 8, dtype=torch.bfloat16)
    torch.testing.assert_close(moments(z)[1], moments(z.float())[1])


def test_one_sample_has_no_covariance() -> None:
    with pytest.raises(UserError, match="at least 2 samples"):
        moments(torch.zeros(1, 3))
