"""The risk of each domain, and the mean distance over pairs of domains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

Sample = TypeVar("Sample")


def domain_risks(logits: Iterable[Tensor], batches: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Compute L_e = mean cross-entropy of domain e.

    The logits are k tensors (b_e, C), in the order of the batches (x, y).

    >>> x, y = torch.zeros(2, 1), torch.tensor([0, 1])
    >>> domain_risks([torch.zeros(2, 2)], [(x, y)]).exp().tolist()
    [2.0]
    """
    return torch.stack([cross_entropy(o, y) for o, (_, y) in zip(logits, batches)])


def mean_over_pairs(distance: Callable[[Sample, Sample], Tensor], samples: Sequence[Sample]) -> Tensor:
    """Average `distance` over all unordered pairs of different samples; 0 for one sample, which has no pair.

    >>> mean_over_pairs(lambda a, b: torch.tensor(abs(a - b)), [0.0, 1.0, 3.0]).item()
    2.0
    """
    distances = [distance(a, b) for a, b in combinations(samples, 2)]
    return torch.stack(distances).mean() if distances else torch.zeros(())
