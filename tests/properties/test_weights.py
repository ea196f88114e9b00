"""Mixing weights: what must hold for any scores and any λ."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fgmix.mixing.weights import dirichlet_weights, entropy, extrapolated_share, mixing_matrix, scale_and_shift
from properties.quickly import quickly

LAMBDAS = st.floats(0.1, 20)


@st.composite
def simplex(draw: st.DrawFn) -> Tensor:
    """Weights (n, k) that sum to 1."""
    n, k = draw(st.integers(1, 5)), draw(st.integers(2, 5))
    scores = draw(st.lists(st.floats(-8, 8), min_size=n * k, max_size=n * k))
    return torch.tensor(scores, dtype=torch.float64).view(n, k).softmax(-1)


@quickly
@given(simplex(), LAMBDAS)
def test_scaled_weights_sum_to_one_and_differ_lambda_times_as_much(a: Tensor, lam: float) -> None:
    scaled = scale_and_shift(a, lam)
    torch.testing.assert_close(scaled.sum(-1), torch.ones(len(a), dtype=a.dtype))
    torch.testing.assert_close(scaled.diff(dim=-1), lam * a.diff(dim=-1))


@quickly
@given(simplex(), LAMBDAS, LAMBDAS)
def test_scalings_compose_and_one_is_none(a: Tensor, first: float, second: float) -> None:
    torch.testing.assert_close(scale_and_shift(scale_and_shift(a, first), second), scale_and_shift(a, first * second))
    torch.testing.assert_close(scale_and_shift(a, 1.0), a)


@quickly
@given(simplex(), st.floats(0.1, 1))
def test_a_factor_below_one_never_extrapolates(a: Tensor, lam: float) -> None:
    assert extrapolated_share(scale_and_shift(a, lam)) == 0


@quickly
@given(simplex())
def test_entropy_lies_between_certainty_and_the_uniform(a: Tensor) -> None:
    assert 0 <= float(entropy(a)) <= math.log(a.shape[-1]) + 1e-9


@quickly
@given(st.integers(1, 20), st.integers(1, 6), st.integers(0, 2**31))
def test_random_weights_lie_on_the_simplex(n: int, k: int, seed: int) -> None:
    a = dirichlet_weights(n, k, torch.Generator().manual_seed(seed))
    assert a.shape == (n, k)
    assert (a >= 0).all()
    torch.testing.assert_close(a.sum(-1), torch.ones(n))


@quickly
@given(simplex(), st.data())
def test_the_matrix_mixes_as_the_sum_does(a: Tensor, data: st.DataObject) -> None:
    """A Z equals Σ a_i z_i, written out; a code that a tuple names twice counts twice."""
    (n, k), m = a.shape, data.draw(st.integers(1, 6))
    position = torch.tensor(data.draw(st.lists(st.integers(0, m - 1), min_size=n * k, max_size=n * k))).view(n, k)
    z = torch.from_numpy(np.random.default_rng(m).normal(size=(m, 3)))
    by_sum = torch.stack([sum(a[i, j] * z[position[i, j]] for j in range(k)) for i in range(n)])  # type: ignore[misc]
    torch.testing.assert_close(mixing_matrix(a, position, m) @ z, by_sum)
