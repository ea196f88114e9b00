"""Risks of domains and means over their pairs."""

import pytest
import torch

from fgmix.functional.domains import domain_risks, mean_square_over_pairs
from reference.pairs import mean_over_pairs


def test_risks_are_means_of_negative_log_probabilities() -> None:
    logits = [torch.randn(3, 4), torch.randn(2, 4)]
    labels = [torch.tensor([0, 3, 1]), torch.tensor([2, 2])]
    L = domain_risks(logits, [(torch.empty(len(y)), y) for y in labels])
    for risk, o, y in zip(L, logits, labels):
        torch.testing.assert_close(
            risk, -sum(torch.log(o[i].exp()[y[i]] / o[i].exp().sum()) for i in range(len(y))) / len(y)
        )


@pytest.mark.parametrize("k", [2, 3, 7])
def test_the_mean_square_over_pairs_is_the_loops(k: int) -> None:
    a = [torch.randn(3, 2, dtype=torch.float64) for _ in range(k)]
    torch.testing.assert_close(
        mean_square_over_pairs(a), mean_over_pairs(lambda x, y: (x - y).square().mean(), a), rtol=1e-12, atol=0
    )


def test_one_domain_has_no_pair() -> None:
    assert mean_square_over_pairs([torch.ones(4)]) == 0
