"""Means over pairs of domains by a loop over the pairs: quadratic in the number of domains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import torch
from torch import Tensor

from fgmix.functional.kernels import BANDWIDTHS


def mean_over_pairs(distance: Callable[[Tensor, Tensor], Tensor], samples: Sequence[Tensor]) -> Tensor:
    """The mean of `distance` over all unordered pairs of different samples."""
    return torch.stack([distance(a, b) for a, b in combinations(samples, 2)]).mean()


def moment_distance(a: Tensor, b: Tensor) -> Tensor:
    """mean (μ_a − μ_b)² + mean (C_a − C_b)² of two samples (n, d)."""
    return (a.mean(0) - b.mean(0)).square().mean() + (torch.cov(a.T) - torch.cov(b.T)).square().mean()


def rbf_kernel(x: Tensor, y: Tensor) -> Tensor:
    """K_ij = Σ_γ exp(−γ ‖x_i − y_j‖²), from differences."""
    squares = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square()
    return torch.stack([torch.exp(-gamma * squares) for gamma in BANDWIDTHS]).sum(0)


def mmd(a: Tensor, b: Tensor) -> Tensor:
    """mean K(a, a) + mean K(b, b) − 2 mean K(a, b), each from its own matrix of distances."""
    return rbf_kernel(a, a).mean() + rbf_kernel(b, b).mean() - 2 * rbf_kernel(a, b).mean()
