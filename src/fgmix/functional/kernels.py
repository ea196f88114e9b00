"""Maximum mean discrepancy: the distance between two samples in the feature space of a kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fgmix.functional import widen

BANDWIDTHS = (1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3)  # DomainBed's γ, for codes of any scale


def mmd(samples: Sequence[Tensor], gammas: Sequence[float] = BANDWIDTHS) -> Tensor:
    """Compute the squared maximum mean discrepancy, mean over pairs of samples; a single sample has the distance 0.

        MMD²(x, y) = mean K(x, x) + mean K(y, y) − 2 mean K(x, y)

    It is the biased estimate: pairs of a code with itself count too. It is not negative except for rounding. Every
    distance of two codes is computed once, whatever the number of samples: the mean over pairs of samples is a weighted
    sum of the kernel over pairs of codes.

    Gretton et al., "A Kernel Two-Sample Test", 2012, equation 5. The samples are tensors of codes (n_e, d).

    >>> round(mmd([torch.zeros(1, 1), torch.ones(1, 1)], gammas=[1.0]).item(), 6)  # 2 − 2/e
    1.264241
    """
    k = len(samples)
    if k == 1:
        return samples[0].new_zeros(())
    with torch.autocast(samples[0].device.type, enabled=False):
        distance = _pair_distances(torch.cat([widen(z) for z in samples]))
        K = torch.exp(torch.outer(-distance.new_tensor(gammas), distance.square()))  # (G, pairs)
        itself = 2 / k * len(gammas) * sum(1 / len(z) for z in samples)  # K = G for a code and itself
        return (K @ _pair_weights(samples, K)).sum() + itself


def _pair_distances(z: Tensor) -> Tensor:
    """Compute ‖z_i − z_j‖ of all i < j, in rows of i, from differences.

    The expansion ‖x‖² + ‖y‖² − 2xᵀy has an error of 1e-4 at ‖x‖² = 250 in float32, which changes exp(−1000·0) from 1 to
    0.89.
    """
    if z.device.type != "mps":
        return torch.pdist(z)  # a tenth of the time of `cdist`; not available on Apple's GPUs
    i, j = torch.triu_indices(len(z), len(z), 1, device=z.device)
    return torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")[i, j]


def _pair_weights(samples: Sequence[Tensor], like: Tensor) -> Tensor:
    """Compute how often K of every two codes i < j counts in the mean of MMD² over pairs of samples.

    The type and device are those of `like`.

    >>> z = torch.zeros(3, 1)
    >>> _pair_weights([z[:2], z[2:]], z).tolist()  # codes 0 and 1 of the first sample, and 2 of the second
    [0.5, -1.0, -1.0]
    """
    k, N = len(samples), sum(map(len, samples))
    sample = torch.cat([torch.full((len(z),), e, device=like.device) for e, z in enumerate(samples)])
    share = torch.cat([like.new_full((len(z),), 1 / len(z)) for z in samples])
    i, j = torch.triu_indices(N, N, 1, device=like.device)
    within, across = like.new_full((), 4 / k), like.new_full((), -4 / (k * (k - 1)))
    return torch.where(sample[i] == sample[j], within, across) * share[i] * share[j]
