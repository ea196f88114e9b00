"""Weights: the paper's printed numbers and the properties that hold for every λ."""

from __future__ import annotations

import math

import pytest
import torch

from fgmix.mixing import (
    cosine_scores,
    dirichlet_weights,
    entropy,
    extrapolated_share,
    mixing_matrix,
    scale_and_shift,
)
from fgmix.mixing.scores import Vectors


def test_toy_table_of_the_paper() -> None:
    """Four gradients of the appendix: cosines, scores, weights and the mixed gradient to the printed digits."""
    g = torch.tensor([[-0.5, 1.0], [-1.0, 0.5], [-1.0, -1.0], [1.0, -1.0]], dtype=torch.float64)
    vectors, position = Vectors((g,)), torch.arange(4).unsqueeze(0)
    cosines = vectors.cosines(position)[0]
    assert cosines[0].tolist() == pytest.approx([1.0, 0.8, -0.316, -0.949], abs=5e-4)
    assert cosines[1:, 1:].flatten().tolist() == pytest.approx(
        [1.0, 0.316, -0.949, 0.316, 1.0, 0.0, -0.949, 0.0, 1.0], abs=5e-4
    )
    s = cosine_scores(vectors, position)
    assert s[0].tolist() == pytest.approx([-0.465, 0.168, 0.0, -1.897], abs=5e-4)
    a = torch.softmax(s, 1)
    assert a[0].tolist() == pytest.approx([0.21218712, 0.39938428, 0.33777486, 0.05065374], abs=5e-9)

    mixed = (a @ g)[0]
    assert mixed.tolist() == pytest.approx([-0.793, 0.023], abs=5e-4)

    def cosine(v: list[float]) -> float:
        return torch.cosine_similarity(mixed, torch.tensor(v, dtype=torch.float64), 0).item()

    assert cosine([-1.5, 0.0]) == pytest.approx(0.9996, abs=5e-5)
    assert cosine([-1.5, -0.5]) == pytest.approx(0.9389, abs=5e-5)


def test_lambda_examples_of_the_paper() -> None:
    a = torch.tensor([0.1, 0.6, 0.3])
    assert scale_and_shift(a, 3.0).tolist() == pytest.approx([-0.367, 1.133, 0.233], abs=5e-4)
    assert torch.equal(scale_and_shift(a, 1.0), a)
    k = torch.rand(2, 17)  # first without gradients, then with
    with torch.inference_mode():
        scale_and_shift(k, 2.0)
    scale_and_shift(k.requires_grad_(), torch.tensor(2.0, requires_grad=True)).sum().backward()


@pytest.mark.parametrize("lam", [-2.0, 0.0, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("k", [2, 3, 5])
def test_weights_sum_to_one_for_every_lambda(lam: float, k: int) -> None:
    a = torch.softmax(torch.randn(50, k, dtype=torch.float64), 1)
    torch.testing.assert_close(scale_and_shift(a, lam).sum(1), torch.ones(50, dtype=torch.float64))


def test_dirichlet_weights_are_uniform_over_the_simplex() -> None:
    """Dirichlet(1, 1, 1): mean 1/3, variance 1/18, covariance −1/36. Bounds: five standard errors at n = 40,000."""
    a = dirichlet_weights(40_000, 3, torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(a.sum(1), torch.ones(40_000, dtype=torch.float64))
    assert a.min() >= 0
    assert a.mean(0).tolist() == pytest.approx([1 / 3] * 3, abs=5 * math.sqrt(1 / 18 / 40_000))
    expected = torch.full((3, 3), -1 / 36, dtype=torch.float64).fill_diagonal_(1 / 18)
    torch.testing.assert_close(torch.cov(a.T), expected, rtol=0, atol=5 * 0.07 / math.sqrt(40_000))


def test_extrapolated_share_counts_tuples_not_weights() -> None:
    a = torch.tensor([[-0.1, -0.2, 1.3], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0], [1.5, -0.5, 0.0]])
    assert extrapolated_share(a).item() == 0.5


def test_entropy_of_known_weights() -> None:
    a = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    assert entropy(a).item() == pytest.approx(math.log(2) / 2)


def test_mixing_matrix_is_the_sum_over_members() -> None:
    a, z = torch.randn(4, 3, requires_grad=True), torch.randn(6, 5)
    position = torch.tensor([[0, 1, 2], [3, 3, 5], [5, 0, 4], [1, 1, 1]])  # members may repeat
    torch.testing.assert_close(mixing_matrix(a, position, 6) @ z, torch.einsum("nk,nkd->nd", a, z[position]))
