"""First and second moments of codes, and the distance between the moments of samples."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fgmix.functional import require_two, widen
from fgmix.functional.domains import mean_square_over_pairs


def moments(z: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the mean and covariance of codes.

        μ = mean_i z_i,    C = 1/(n − 1) Σ_i (z_i − μ)(z_i − μ)ᵀ

    Computed in float32 or wider, even under autocast: half precision is too coarse for small differences.

    z (n, d) are at least two codes; μ is (d,) and C (d, d).

    >>> mu, C = moments(torch.tensor([[0.0, 1.0], [2.0, 1.0]]))
    >>> mu.tolist(), C.tolist()
    ([1.0, 1.0], [[2.0, 0.0], [0.0, 0.0]])
    """
    require_two(len(z), "A covariance")
    with torch.autocast(z.device.type, enabled=False):
        z = widen(z)
        mu = z.mean(0)
        centred = z - mu
        return mu, centred.T @ centred / (len(z) - 1)


def moment_distance(samples: Sequence[Tensor]) -> Tensor:
    """Compute mean_{i<j} ( mean (μ_i − μ_j)² + mean (C_i − C_j)² ), the inner means over the d and the d² entries.

    Sun and Saenko, "Deep CORAL", 2016, https://arxiv.org/abs/1607.01719, has the second term (with 1/(4d²) in place of
    1/d²); the first is DomainBed's. The samples are k tensors of codes (n_e, d); a single one has the distance 0.

    >>> z = torch.tensor([[0.0, 1.0], [2.0, 1.0]])
    >>> moment_distance([z, z + 3]).item()
    9.0
    """
    mu, C = zip(*map(moments, samples))
    return mean_square_over_pairs(mu) + mean_square_over_pairs(C)
