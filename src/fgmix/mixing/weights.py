"""Mixing weights: scale and shift, Dirichlet weights, and statistics of weights."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


def scale_and_shift(a: Tensor, lam: Tensor | float) -> Tensor:
    """Compute ã_i = λ a_i − (λ − 1)/k: weights (…, k) that still sum to 1 but may leave [0, 1].

    λ = 1 is the identity; if any ã_i < 0 the mixed code is an extrapolation.

    >>> scale_and_shift(torch.tensor([0.1, 0.6, 0.3]), 3.0)
    tensor([-0.3667,  1.1333,  0.2333])
    """
    uniform = _make_uniform(a.shape[-1], a.dtype, a.device)
    return torch.lerp(uniform, a, torch.as_tensor(lam, dtype=a.dtype))  # 1/k + λ (a − 1/k) in one operation


@lru_cache(16)
def _make_uniform(k: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return 1/k."""
    with torch.inference_mode(False):  # a later call may need gradients
        return torch.tensor(1 / k, dtype=dtype, device=device)


def dirichlet_weights(
    n: int,
    k: int,
    generator: torch.Generator | None = None,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return weights (n, k), each row from Dirichlet(1, …, 1): uniform over the simplex.

    Exponential variables divided by their sum, because `torch.distributions` has no generator argument.
    """
    e = torch.empty(n, k, device=device, dtype=dtype).exponential_(generator=generator)
    return e / e.sum(-1, keepdim=True)


def mixing_matrix(a: Tensor, position: Tensor, m: int) -> Tensor:
    """Return weights of n tuples over m codes as one matrix A (n, m), so that the mixed codes are A Z.

    `position` (n, k) tells which of the m codes each weight of a (n, k) belongs to.

    >>> mixing_matrix(torch.tensor([[0.25, 0.75]]), torch.tensor([[2, 0]]), 3)
    tensor([[0.7500, 0.0000, 0.2500]])
    """
    return a.new_zeros(len(a), m).scatter_add(1, position, a)


def extrapolated_share(a: Tensor) -> Tensor:
    """Compute the share of tuples with any negative weight."""
    return (a < 0).any(-1).to(a.dtype).mean()


def entropy(a: Tensor) -> Tensor:
    """Average −Σ a_i log a_i over tuples, for weights in [0, 1] (those before scale and shift); 0 log 0 = 0."""
    surprise: Tensor = torch.special.entr(a)
    return surprise.sum(-1).mean()


def rank_correlation(a: Tensor, x: Tensor) -> Tensor:
    """Average Spearman's rank correlation of weights and values of the members, both (n, k), over tuples.

    Equal values share their mean rank; a tuple in which all weights or all values are equal counts as 0.

    >>> rank_correlation(torch.tensor([[0.1, 0.6, 0.3], [0.2, 0.2, 0.6]]), torch.tensor([[1.0, 9.0, 2.0]] * 2))
    tensor(0.5000)
    """
    r, s = ((v.unsqueeze(2) - v.unsqueeze(1)).sign().sum(2) for v in (a, x))  # twice the ranks, centred
    scale = (r.square().sum(1) * s.square().sum(1)).sqrt()
    return ((r * s).sum(1) / scale.clamp_min(1)).mean()  # at least 2 unless one is constant
