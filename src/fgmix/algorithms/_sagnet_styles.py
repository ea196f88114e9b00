"""What both variants of SagNet share: the two randomisations and parts of the losses."""

from __future__ import annotations

import torch
from torch import Tensor

from fgmix.functional.precision import widened
from fgmix.functional.style import instance_statistics, restyle


def randomise_style(z: Tensor, alpha: Tensor, pi: Tensor) -> Tensor:
    """SR(z): the statistics of z interpolated with those of its partner.

    Args:
        z: codes (n, d) or maps (n, c, h, w).
        alpha: α (n,), the weight of a sample's own statistics.
        pi: permutation (n,), the partners.

    Example:
        >>> z = torch.tensor([[1.0, 3.0], [10.0, 14.0]])
        >>> randomise_style(z, torch.zeros(2), torch.tensor([1, 0])).round(decimals=3)
        tensor([[10., 14.],
                [ 1.,  3.]])
    """
    maps = _as_maps(z)
    mu, sigma = instance_statistics(maps)
    alpha = alpha.view(-1, 1, 1, 1).to(mu.dtype)
    mu_new = torch.lerp(mu[pi], mu, alpha)
    sigma_new = torch.lerp(sigma[pi].square(), sigma.square(), alpha).sqrt()
    return restyle(maps, (mu, sigma), (mu_new, sigma_new)).view_as(z)


def randomise_content(z: Tensor, pi: Tensor) -> Tensor:
    """CR(z): the partner's normalised values, as constants, with the statistics of z.

    Args:
        z: codes (n, d) or maps (n, c, h, w).
        pi: permutation (n,), the partners.

    Example:
        >>> z = torch.tensor([[1.0, 3.0], [14.0, 10.0]])
        >>> randomise_content(z, torch.tensor([1, 0])).round(decimals=3)
        tensor([[ 3.,  1.],
                [10., 14.]])
    """
    maps = _as_maps(z)
    mu, sigma = instance_statistics(maps)
    partner = (mu[pi].detach(), sigma[pi].detach())
    return restyle(maps[pi].detach(), partner, (mu, sigma)).view_as(z)


def shares(x: Tensor) -> Tensor:
    """α ~ U(0, 1), one per sample."""
    return torch.rand(len(x), device=x.device)


def partners(x: Tensor) -> Tensor:
    """π, a random permutation of the batch."""
    return torch.randperm(len(x), device=x.device)


def distance_to_uniform(logits: Tensor) -> Tensor:
    """Cross-entropy of the predictions to the uniform distribution over classes."""
    return -widened(logits).log_softmax(1).mean()


def _as_maps(z: Tensor) -> Tensor:
    """Codes (n, d) as maps of one channel, d pixels wide; maps as they are."""
    return z[:, None, None] if z.ndim == 2 else z
