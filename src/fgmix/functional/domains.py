"""Batches of the domains: which samples they hold, the risk of each, and how far apart values of the domains are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss


def domain_risks(logits: Iterable[Tensor], batches: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Compute L_e = mean cross-entropy of domain e.

    The logits are k tensors (b_e, C), in the order of the batches (x, y).

    >>> x, y = torch.zeros(2, 1), torch.tensor([0, 1])
    >>> domain_risks([torch.zeros(2, 2)], [(x, y)]).exp().tolist()
    [2.0]
    """
    return torch.stack([cross_entropy(o, y) for o, (_, y) in zip(logits, batches)])


def scatter(a: Sequence[Tensor]) -> Tensor:
    """Compute Σ_e ‖a_e − ā‖² of tensors of one shape, one for each domain, with ā = mean_e a_e constant.

    That ā is constant does not change the gradient, because Σ_e (a_e − ā) = 0. The tensors are not stacked: those of a
    large network would be copied.

    >>> scatter([torch.tensor([1.0, 0.0]), torch.tensor([3.0, 0.0])]).item()
    2.0
    """
    with torch.no_grad():
        mean = a[0].clone()
        for a_e in a[1:]:
            mean += a_e
        mean /= len(a)
    return torch.stack([mse_loss(a_e, mean, reduction="sum") for a_e in a]).sum()


def mean_square_over_pairs(a: Sequence[Tensor]) -> Tensor:
    """Compute mean_{i<j} mean (a_i − a_j)², the inner mean over the entries; 0 for one domain, which has no pair.

    It is 2/(k − 1) Σ_e mean (a_e − ā)²: linear in the number of domains.

    >>> mean_square_over_pairs([torch.tensor(0.0), torch.tensor(1.0), torch.tensor(5.0)]).item()  # (1 + 16 + 25)/3
    14.0
    """
    return 2 / max(len(a) - 1, 1) * scatter(a) / a[0].numel()


class IndexedBatch(tuple[Tensor, Tensor]):
    """A batch (x, y) with `indices`, the place of each sample in its domain, for methods with `needs_indices`.

    >>> import torch
    >>> x, y = batch = IndexedBatch(torch.zeros(2, 3), torch.tensor([0, 1]), torch.tensor([7, 4]))
    >>> batch.indices.tolist()
    [7, 4]
    """

    indices: Tensor

    def __new__(cls, x: Tensor, y: Tensor, indices: Tensor) -> Self:
        batch = super().__new__(cls, (x, y))
        batch.indices = indices
        return batch
