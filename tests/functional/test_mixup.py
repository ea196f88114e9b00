"""The pieces of the mixup family."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fgmix.functional.mixup import mixed_cross_entropy, mixup_loss, ring_pairs, sample_beta


def domain(e: int, b: int = 4) -> tuple[Tensor, Tensor]:
    return torch.full((b, 2), float(e)), torch.full((b,), e)


@pytest.mark.parametrize("alpha", [0.1, 0.2, 2.0])
def test_beta_has_its_mean_and_variance(alpha: float) -> None:
    lam = sample_beta(alpha, 20_000)
    assert float(lam.mean()) == pytest.approx(0.5, abs=0.02)
    assert float(lam.var()) == pytest.approx(1 / (4 * (2 * alpha + 1)), abs=0.01)


@pytest.mark.parametrize("k", range(2, 7))
def test_ring_is_one_cycle_through_all_domains(k: int) -> None:
    following = {int(y_i[0]): int(y_j[0]) for (_, y_i), (_, y_j) in ring_pairs([domain(e) for e in range(k)])}
    visited = [0]
    for _ in range(k - 1):
        visited.append(following[visited[-1]])
    assert sorted(visited) == list(range(k))
    assert following[visited[-1]] == 0


def test_ring_pairs_are_cut_to_the_shorter_batch() -> None:
    for (x_i, y_i), (x_j, y_j) in ring_pairs([domain(0, 2), domain(1, 5), domain(2, 3)]):
        shorter = min({0: 2, 1: 5, 2: 3}[int(y[0])] for y in (y_i, y_j))
        assert len(x_i) == len(y_i) == len(x_j) == len(y_j) == shorter


def test_split_cross_entropy_is_that_of_mixed_labels() -> None:
    logits, lam = torch.randn(6, 3), torch.tensor(0.3)
    y_i, y_j = torch.randint(3, (6,)), torch.randint(3, (6,))
    soft = lam * one_hot(y_i, 3) + (1 - lam) * one_hot(y_j, 3)
    expected = -(soft * torch.log_softmax(logits, 1)).sum(1).mean()
    torch.testing.assert_close(mixed_cross_entropy(logits, y_i, y_j, lam), expected)


def test_every_pair_weighs_the_same_whatever_its_length() -> None:
    """f(x) = x on two pairs of 1 and 3 instances: the mean of the pairs' means, written out."""
    x, y = torch.randn(8, 3), torch.randint(3, (8,))
    pairs = [((x[:1], y[:1]), (x[1:2], y[1:2])), ((x[2:5], y[2:5]), (x[5:], y[5:]))]
    lam = torch.tensor([0.2, 0.9])
    expected = []
    for l_p, ((x_i, y_i), (x_j, y_j)) in zip(lam.tolist(), pairs):
        log_p = torch.log_softmax(l_p * x_i + (1 - l_p) * x_j, 1)
        n = torch.arange(len(y_i))
        expected.append(-(l_p * log_p[n, y_i] + (1 - l_p) * log_p[n, y_j]).mean())
    torch.testing.assert_close(mixup_loss(lambda x: x, pairs, lam), sum(expected) / 2)
