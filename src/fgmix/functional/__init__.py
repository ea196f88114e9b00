"""Stateless tensor functions shared by two or more methods; independent of the algorithms."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fgmix.errors import UserError


def widen(x: Tensor) -> Tensor:
    """Convert x to float32 at least: for differences of nearly equal numbers, which half precision rounds away.

    >>> widen(torch.zeros(1, dtype=torch.bfloat16)).dtype, widen(torch.zeros(1, dtype=torch.float64)).dtype
    (torch.float32, torch.float64)
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))


def require_two(samples: int, what: str) -> None:
    """Raise an error for fewer than two samples of a domain in a batch; `what` needs them."""
    if samples < 2:
        raise UserError(f"{what} needs at least 2 samples of each domain. Found {samples}. Raise the batch size.")


def numbers(*modules: nn.Module) -> list[Tensor]:
    """Return parameters and floating-point buffers; batch-norm's integer counters are neither averaged nor copied."""
    tensors = [t for module in modules for t in (*module.parameters(), *module.buffers())]
    return [t.detach() for t in tensors if t.is_floating_point()]
