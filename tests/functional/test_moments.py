"""Mean, covariance and their distance against numpy."""

import numpy as np
import pytest
import torch

from fgmix.errors import UserError
from fgmix.functional.moments import moment_distance, moments
from reference import pairs


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
    np.testing.assert_allclose(moment_distance([a, b]), expected)


def test_distance_ignores_the_order_of_instances_and_of_samples() -> None:
    a, b = torch.randn(6, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    straight = moment_distance([a, b])
    torch.testing.assert_close(straight, moment_distance([b.flip(0), a.flip(0)]))


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


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_distances_from_the_mean_equal_the_loop_over_pairs(k: int, dtype: torch.dtype, rtol: float) -> None:
    """The value and its gradient."""
    z = [(torch.randn(4 + e, 3, dtype=dtype) + e).requires_grad_() for e in range(k)]
    fast, slow = moment_distance(z), pairs.mean_over_pairs(pairs.moment_distance, z)
    torch.testing.assert_close(fast, slow, rtol=rtol, atol=0)
    for a, b in zip(torch.autograd.grad(fast, z), torch.autograd.grad(slow, z)):
        torch.testing.assert_close(a, b, rtol=rtol, atol=rtol)
