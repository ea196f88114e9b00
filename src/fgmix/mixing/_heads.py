"""Access to a classifier h_φ: whether it is one Linear layer, its parameters, and its logits with φ constant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call


def unwrap(classifier: nn.Module) -> nn.Module:
    """Return the classifier without the wrapper of `torch.compile`, which `torch.func` does not support."""
    original = getattr(classifier, "_orig_mod", classifier)
    return original if isinstance(original, nn.Module) else classifier


def linear_head(classifier: nn.Module) -> nn.Linear | None:
    """Return the classifier if its type is exactly `nn.Linear`, for which the closed forms hold; else None, for the
    general path: a subclass (such as a parametrised layer) may compute something else."""
    head = unwrap(classifier)
    return head if type(head) is nn.Linear else None


def block_sizes(classifier: nn.Module) -> list[int]:
    """Return the number of elements of each parameter tensor of φ, in the order of `parameters()`; they add up to P."""
    head = linear_head(classifier)  # its two are known without a walk over modules
    tensors = unwrap(classifier).parameters() if head is None else (head.weight, head.bias)
    return [p.numel() for p in tensors if p is not None]


def frozen_parameters(head: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return φ as constants: no gradient of the policy's loss may reach the base model."""
    return {name: p.detach().to(dtype) for name, p in head.named_parameters()}


def linear_logits(head: nn.Linear, z: Tensor) -> Tensor:
    """Compute h_φ(z) with φ constant, in the dtype of z."""
    bias = None if head.bias is None else head.bias.detach().to(z.dtype)
    return nn.functional.linear(z, head.weight.detach().to(z.dtype), bias)


@torch.no_grad()
def logits_of(classifier: nn.Module, z: Tensor) -> Tensor:
    """Compute h_φ(z) of any head with φ constant, in evaluation mode and in the dtype of z."""
    linear = linear_head(classifier)
    if linear is not None:
        return linear_logits(linear, z)
    head = unwrap(classifier)
    with set_evaluation_mode(head):
        logits: Tensor = functional_call(head, frozen_parameters(head, z.dtype), (z,))
    return logits


@contextmanager
def set_evaluation_mode(head: nn.Module) -> Iterator[None]:
    """Set evaluation mode within the block: g_i and L(φ') must not depend on a dropout mask or on batch statistics."""
    training = [module for module in head.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
