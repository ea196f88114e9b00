"""What the parts need to know of a classifier h_φ: is it one Linear layer, and what are its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call


def bare(classifier: nn.Module) -> nn.Module:
    """The classifier without the wrapper of `torch.compile`, which `torch.func` cannot look through."""
    original = getattr(classifier, "_orig_mod", classifier)
    return original if isinstance(original, nn.Module) else classifier


def linear_head(classifier: nn.Module) -> nn.Linear | None:
    """The classifier if closed forms hold for it: exactly `nn.Linear`. A subclass (a parametrised one, say) may compute
    something else, so it takes the general path."""
    head = bare(classifier)
    return head if type(head) is nn.Linear else None


def block_sizes(classifier: nn.Module) -> list[int]:
    """Numbers in each parameter of φ, in the order of `parameters()`; they add up to P."""
    return [p.numel() for p in bare(classifier).parameters()]


def frozen_parameters(head: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    """φ as constants: no loss of the policy may reach the base model."""
    return {name: p.detach().to(dtype) for name, p in head.named_parameters()}


def linear_logits(head: nn.Linear, z: Tensor) -> Tensor:
    """h_φ(z) with φ constant, in the dtype of z."""
    bias = None if head.bias is None else head.bias.detach().to(z.dtype)
    return nn.functional.linear(z, head.weight.detach().to(z.dtype), bias)


@torch.no_grad()
def logits_of(classifier: nn.Module, z: Tensor) -> Tensor:
    """h_φ(z) of any head with φ constant, in evaluation mode and in the dtype of z."""
    linear = linear_head(classifier)
    if linear is not None:
        return linear_logits(linear, z)
    head = bare(classifier)
    with evaluating(head):
        logits: Tensor = functional_call(head, frozen_parameters(head, z.dtype), (z,))
    return logits


@contextmanager
def evaluating(head: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while: g_i and L(φ') belong to φ, not to a dropout mask or to a batch's statistics."""
    training = [module for module in head.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
