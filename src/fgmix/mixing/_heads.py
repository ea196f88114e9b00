"""Access to a classifier h_φ: whether it is one Linear layer, its parameters, and its logits with φ constant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call

_ELEMENTWISE = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.Tanh)


def unwrap(classifier: nn.Module) -> nn.Module:
    """Return the classifier without the wrapper of `torch.compile`, which `torch.func` does not support."""
    original = getattr(classifier, "_orig_mod", classifier)
    return original if isinstance(original, nn.Module) else classifier


def linear_head(classifier: nn.Module) -> nn.Linear | None:
    """Return the classifier if its type is exactly `nn.Linear`, for which the closed forms hold; else None, for the
    general path: a subclass (such as a parametrised layer) may compute something else."""
    head = unwrap(classifier)
    return head if type(head) is nn.Linear else None


def chain_of(classifier: nn.Module) -> tuple[nn.Module, ...] | None:
    """Return the layers of a head that begins and ends with `nn.Linear` and has only such layers and functions of
    single numbers, for which closed forms hold layer by layer; else None. Dropout, which does nothing in evaluation
    mode, is left out."""
    head = unwrap(classifier)
    if type(head) is nn.Linear:
        return (head,)
    layers = tuple(head) if type(head) is nn.Sequential else ()
    chain = tuple(layer for layer in layers if type(layer) not in (nn.Dropout, nn.Identity))
    linears = [layer for layer in chain if type(layer) is nn.Linear]
    functions = [layer for layer in chain if type(layer) in _ELEMENTWISE and not getattr(layer, "inplace", False)]
    if not linears or len(linears) + len(functions) < len(chain) or linears[0] is not chain[0]:
        return None
    shared = len(list(head.parameters())) < sum(1 + (layer.bias is not None) for layer in linears)
    return None if shared or linears[-1] is not chain[-1] else chain


def pass_through(chain: tuple[nn.Module, ...], x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Return inputs and outputs of the linear layers of a chain with φ constant; outputs can be differentiated in."""
    inputs, outputs = [], []
    for layer in chain:
        if isinstance(layer, nn.Linear):
            inputs.append(x)
            x = linear_logits(layer, x)
            outputs.append(x if x.requires_grad else x.requires_grad_())
        else:
            x = layer(x)
    return inputs, outputs


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
