"""Inputs without content, which no model should trust itself on."""

from __future__ import annotations

import torch
from torch import Tensor


def noise_like(x: Tensor, n: int, seed: int = 0) -> Tensor:
    """Noise of the range of given samples: half of it pixels of random colours, half plain images of one colour each.

    Features are drawn independently of each other, each with its own mean and variance.

    Args:
        x: samples (m, f) or (m, c, h, w), as a network sees them.
        n: how much noise.
        seed: of the draw.

    Example:
        >>> noise_like(torch.rand(9, 3, 8, 8), 4).shape
        torch.Size([4, 3, 8, 8])
    """
    generator = torch.Generator().manual_seed(seed)
    if x.ndim == 2:
        return x.mean(0) + x.std(0, correction=0) * torch.randn(n, x.shape[1], generator=generator)
    low, high = x.amin((0, 2, 3))[:, None, None], x.amax((0, 2, 3))[:, None, None]
    pixels = torch.rand(n - n // 2, *x.shape[1:], generator=generator)
    plain = torch.rand(n // 2, x.shape[1], 1, 1, generator=generator).expand(-1, *x.shape[1:])
    return low + (high - low) * torch.cat([pixels, plain])
