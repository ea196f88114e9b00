"""Risks of domains and means over their pairs."""

import torch

from fgmix.functional.domains import domain_risks, mean_over_pairs


def test_risks_are_means_of_negative_log_probabilities() -> None:
    logits = [torch.randn(3, 4), torch.randn(2, 4)]
    labels = [torch.tensor([0, 3, 1]), torch.tensor([2, 2])]
    L = domain_risks(logits, [(torch.empty(len(y)), y) for y in labels])
    for risk, o, y in zip(L, logits, labels):
        torch.testing.assert_close(
            risk, -sum(torch.log(o[i].exp()[y[i]] / o[i].exp().sum()) for i in range(len(y))) / len(y)
        )


def test_pairs_are_unordered_and_distinct() -> None:
    seen = []

    def distance(a: int, b: int) -> torch.Tensor:
        seen.append((a, b))
        return torch.tensor(float(a * b))

    assert mean_over_pairs(distance, [2, 3, 5]) == (6 + 10 + 15) / 3
    assert seen == [(2, 3), (2, 5), (3, 5)]


def test_one_sample_has_no_pair() -> None:
    assert mean_over_pairs(lambda a, b: a + b, [torch.ones(())]) == 0
