"""Losses of codes and of predictions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fgmix.functional import widen

EPS = 1e-5  # DomainBed's ε, added to the sum of similarities and inside the logarithm


def supervised_contrast(z: Tensor, y: Tensor, temperature: float = 0.07) -> Tensor:
    """Compute the supervised contrastive loss of a batch, with DomainBed's constants.

        s_ij = ½ exp(z_i·z_j / (T ‖z_i‖ ‖z_j‖)),    p_ij = s_ij / (Σ_{m≠i} s_im + ε)
        loss = −1/(n' + 1) Σ_i mean_{j≠i: y_j = y_i} log(p_ij + ε)

    over the n' samples i with another sample of their class. The factor ½ is DomainBed's weight for pairs within and
    across domains; it only matters relative to ε.

    Khosla et al., "Supervised Contrastive Learning", 2020, https://arxiv.org/abs/2004.11362.

    >>> z, y = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 0, 1])
    >>> round(supervised_contrast(z, y).item(), 2)  # the second code is the third's, whose class is another
    4.05
    """
    with torch.autocast(z.device.type, enabled=False):
        z = normalize(widen(z), dim=1)
        s = 0.5 * torch.exp(z @ z.T / temperature)
    other = ~torch.eye(len(y), dtype=torch.bool, device=y.device)
    partners = (y[:, None] == y) & other
    log_p = torch.log(s / ((s * other).sum(1, keepdim=True) + EPS) + EPS)
    counts = partners.sum(1)
    means = (log_p * partners).sum(1) / counts.clamp(min=1)
    return -means.sum() / ((counts > 0).sum() + 1)


def softmax_entropy(logits: Tensor) -> Tensor:
    """Compute H(p) = −Σ_c p_c log p_c (n,) of p = softmax(logits), logits (n, C).

    >>> import torch
    >>> round(softmax_entropy(torch.zeros(1, 2)).item(), 4)  # log 2
    0.6931
    """
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1)
