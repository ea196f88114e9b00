"""Stateless tensor functions shared by two or more methods; independent of the algorithms."""

from __future__ import annotations

import torch
from torch import Tensor


def widen(x: Tensor) -> Tensor:
    """Convert x to float32 at least: for differences of nearly equal numbers, which half precision rounds away.

    >>> widen(torch.zeros(1, dtype=torch.bfloat16)).dtype, widen(torch.zeros(1, dtype=torch.float64)).dtype
    (torch.float32, torch.float64)
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))
