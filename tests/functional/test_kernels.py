"""The kernel two-sample statistic against loops over pairs."""

import math

import pytest
import torch

from fgmix.functional.kernels import BANDWIDTHS, mmd
from reference import pairs


def naive_kernel(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.tensor(
        [[sum(math.exp(-gamma * float(((a - b) ** 2).sum())) for gamma in BANDWIDTHS) for b in y] for a in x],
        dtype=x.dtype,
    )


def test_the_statistic_equals_the_loops() -> None:
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64) + 0.5
    expected = naive_kernel(x, x).mean() + naive_kernel(y, y).mean() - 2 * naive_kernel(x, y).mean()
    torch.testing.assert_close(mmd([x, y]), expected)


def test_gradient_is_the_finite_difference_s() -> None:
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    y = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: mmd([a, b], gammas=[0.1, 1.0]), (x, y))


def test_equal_samples_have_no_distance_and_no_gradient() -> None:
    x = torch.randn(6, 3, requires_grad=True)
    value = mmd([x, x])
    (gradient,) = torch.autograd.grad(value, x)
    assert abs(value) < 1e-6
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-6)


def test_two_points_far_apart_reach_the_largest_value() -> None:
    """K = 7 on the diagonal, 0 across: 7 + 7."""
    assert mmd([torch.zeros(1, 1), torch.full((1, 1), 1e4)]).item() == pytest.approx(14)


def test_an_instance_is_at_distance_zero_from_itself_in_float32() -> None:
    """The expanded square is off by 1e-4 here, and exp(−1000 · 1e-4) = 0.9."""
    x = torch.randn(1, 512).relu()
    assert mmd([x, x]) == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_codes_are_widened(dtype: torch.dtype) -> None:
    x, y = torch.randn(5, 3, dtype=dtype), torch.randn(4, 3, dtype=dtype)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(mmd([x, y]), mmd([x.float(), y.float()]))


@pytest.mark.parametrize("sizes", [(4, 4), (3, 5, 2, 6), (1, 1, 1)])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_one_set_of_distances_equals_the_loop_over_pairs(
    sizes: tuple[int, ...], dtype: torch.dtype, atol: float
) -> None:
    """The value and its gradient."""
    z = [torch.randn(n, 3, dtype=dtype, requires_grad=True) for n in sizes]
    fast, slow = mmd(z), pairs.mean_over_pairs(pairs.mmd, z)
    torch.testing.assert_close(fast, slow, rtol=0, atol=atol)
    for a, b in zip(torch.autograd.grad(fast, z), torch.autograd.grad(slow, z)):
        torch.testing.assert_close(a, b, rtol=0, atol=10 * atol)


def test_every_distance_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pdist, calls = torch.pdist, []
    monkeypatch.setattr(torch, "pdist", lambda z: calls.append(len(z)) or pdist(z))
    mmd([torch.randn(4, 3)] * 12)
    assert calls == [48]
