"""First and second moments of codes, and a distance between the moments of two samples."""

from __future__ import annotations

import torch
from torch import Tensor

from fgmix.errors import UserError
from fgmix.functional import widen

Moments = tuple[Tensor, Tensor]


def moments(z: Tensor) -> Moments:
    """Compute the mean and covariance of codes.

        μ = mean_i z_i,    C = 1/(n − 1) Σ_i (z_i − μ)(z_i − μ)ᵀ

    Computed in float32 or wider, even under autocast: half precision is too coarse for small differences.

    z (n, d) are at least two codes; μ is (d,) and C (d, d).

    >>> mu, C = moments(torch.tensor([[0.0, 1.0], [2.0, 1.0]]))
    >>> mu.tolist(), C.tolist()
    ([1.0, 1.0], [[2.0, 0.0], [0.0, 0.0]])
    """
    if len(z) < 2:
        raise UserError(
            f"A covariance needs at least 2 samples of each domain in a batch. Found {len(z)}. Raise the batch size."
        )
    with torch.autocast(z.device.type, enabled=False):
        z = widen(z)
        mu = z.mean(0)
        centred = z - mu
        return mu, centred.T @ centred / (len(z) - 1)


def moment_distance(a: Moments, b: Moments) -> Tensor:
    """Compute mean (μ_a − μ_b)² + mean (C_a − C_b)², the means over the d and the d² entries.

    Sun and Saenko, "Deep CORAL", 2016, https://arxiv.org/abs/1607.01719, has the second term (with 1/(4d²) in place of
    1/d²); the first is DomainBed's.

    >>> z = torch.tensor([[0.0, 1.0], [2.0, 1.0]])
    >>> moment_distance(moments(z), moments(z + 3)).item()
    9.0
    """
    (mu_a, C_a), (mu_b, C_b) = a, b
    return (mu_a - mu_b).square().mean() + (C_a - C_b).square().mean()
