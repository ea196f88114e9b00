"""Wider precision where the half precision of autocast is too coarse."""

from __future__ import annotations

import torch
from torch import Tensor


def widened(x: Tensor) -> Tensor:
    """Convert x to float32 at least: for differences of nearly equal numbers, which half precision rounds away.

    >>> widened(torch.zeros(1, dtype=torch.bfloat16)).dtype, widened(torch.zeros(1, dtype=torch.float64)).dtype
    (torch.float32, torch.float64)
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))
