"""Mixing inputs and labels of pairs: functions shared by the mixup family."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

Batch = tuple[Tensor, Tensor]
Pair = tuple[Batch, Batch]


def sample_beta(alpha: float, *shape: int) -> Tensor:
    """Sample λ ~ Beta(α, α) on the CPU: the same numbers on every device.

    >>> lam = sample_beta(0.2, 3, 1)
    >>> lam.shape, bool(((0 <= lam) & (lam <= 1)).all())
    (torch.Size([3, 1]), True)
    """
    return torch.distributions.Beta(alpha, alpha).sample(shape)


def ring_pairs(batches: list[Batch]) -> list[Pair]:
    """Pair each domain with the next in a random cyclic order; k pairs, each cut to the shorter of its batches.

    Variant: DomainBed's, which samples one permutation of the domains per step.

    >>> batches = [(torch.full((2, 1), float(e)), torch.zeros(2, dtype=torch.long)) for e in range(3)]
    >>> sorted(int(x_i[0]) for (x_i, _), _ in ring_pairs(batches))
    [0, 1, 2]
    """
    order = torch.randperm(len(batches)).tolist()
    return [cut_pair(batches[i], batches[j]) for i, j in zip(order, order[1:] + order[:1])]


def cut_pair(first: Batch, second: Batch) -> Pair:
    """Cut two batches to the length of the shorter one."""
    (x_i, y_i), (x_j, y_j) = first, second
    b = min(len(y_i), len(y_j))
    return (x_i[:b], y_i[:b]), (x_j[:b], y_j[:b])


def mixed_cross_entropy(logits: Tensor, y_i: Tensor, y_j: Tensor, lam: Tensor) -> Tensor:
    """Compute λ·CE(y_i) + (1 − λ)·CE(y_j): cross-entropy against the mixed one-hot labels, λ a scalar."""
    return lam * cross_entropy(logits, y_i) + (1 - lam) * cross_entropy(logits, y_j)


def mixup_loss(predict: Callable[[Tensor], Tensor], pairs: list[Pair], lam: Tensor) -> Tensor:
    """Average over pairs p λ_p·CE(f(x̃), y_i) + (1 − λ_p)·CE(f(x̃), y_j), with x̃ = λ_p·x_i + (1 − λ_p)·x_j.

    Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018, https://arxiv.org/abs/1710.09412. f is evaluated on
    all pairs in one pass.

    Both batches of a pair are equally long; λ (P,) is on the inputs' device.
    """
    mixed = [l_p * x_i + (1 - l_p) * x_j for l_p, ((x_i, _), (x_j, _)) in zip(lam, pairs)]
    logits = predict(torch.cat(mixed)).split([len(x) for x in mixed])
    losses = [mixed_cross_entropy(o, y_i, y_j, l_p) for o, l_p, ((_, y_i), (_, y_j)) in zip(logits, lam, pairs)]
    return torch.stack(losses).mean()
