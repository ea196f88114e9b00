"""Maximum mean discrepancy: the distance between two samples in the feature space of a kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fgmix.functional import widen

BANDWIDTHS = (1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3)  # DomainBed's γ, for codes of any scale


def rbf_kernel(x: Tensor, y: Tensor, gammas: Sequence[float] = BANDWIDTHS) -> Tensor:
    """Compute K_ij = Σ_γ exp(−γ ‖x_i − y_j‖²).

    Distances are computed from differences. The expansion ‖x‖² + ‖y‖² − 2xᵀy is faster but has an error of 1e-4 at
    ‖x‖² = 250 in float32, which changes exp(−1000·0) from 1 to 0.89.

    x (n, d) and y (m, d) are codes, K is (n, m).

    >>> rbf_kernel(torch.zeros(1, 3), torch.zeros(2, 3)).tolist()
    [[7.0, 7.0]]
    """
    with torch.autocast(x.device.type, enabled=False):
        distance = torch.cdist(widen(x), widen(y), compute_mode="donot_use_mm_for_euclid_dist")
    gamma = distance.new_tensor(gammas).view(-1, 1, 1)
    return torch.exp(-gamma * distance.square()).sum(0)


def mmd(x: Tensor, y: Tensor, gammas: Sequence[float] = BANDWIDTHS) -> Tensor:
    """Compute the squared maximum mean discrepancy, biased estimate (pairs of a code with itself count too).

        MMD²(x, y) = mean K(x, x) + mean K(y, y) − 2 mean K(x, y)

    Zero for equal x and y, never negative except for rounding.

    Gretton et al., "A Kernel Two-Sample Test", 2012, equation 5.

    >>> x = torch.randn(5, 2)
    >>> mmd(x, x).item()
    0.0
    >>> round(mmd(torch.zeros(1, 1), torch.ones(1, 1), gammas=[1.0]).item(), 6)  # 2 − 2/e
    1.264241
    """
    return rbf_kernel(x, x, gammas).mean() + rbf_kernel(y, y, gammas).mean() - 2 * rbf_kernel(x, y, gammas).mean()
