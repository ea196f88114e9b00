"""Activation checkpointing: keep the inputs of blocks alone, and compute the rest again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from fgmix.errors import UserError
from fgmix.networks.stages import find_blocks, network_name


def recompute_blocks(featurizer: nn.Module) -> None:
    """Let every block of a network compute its activations again in the backward pass instead of storing them.

    Gradients and the names of tensors do not change. Hooks on a block run once, outside of what is repeated. timm's own
    `set_grad_checkpointing` repeats hooks, and would find them removed: methods set some for the forward pass alone.
    """
    # Their statistics would be updated twice.
    if any(isinstance(module, _BatchNorm) and module.training for module in featurizer.modules()):
        raise UserError(
            "Expected frozen batch-norm layers with --checkpoint-activations. Found others. Add --freeze-bn."
        )
    blocks = find_blocks(featurizer)
    if len(blocks) < 2:
        raise UserError(
            f"Expected a network of images with several blocks for --checkpoint-activations. Found "
            f"{network_name(featurizer)}. Drop it."
        )
    for name in blocks:
        block = featurizer.get_submodule(name)
        block.forward = partial(_recompute, block.forward)


def _recompute(forward: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    """Call the forward of a block; in training without storing its activations."""
    if not torch.is_grad_enabled() or not forward.__self__.training:  # type: ignore[attr-defined]  # a method
        return forward(*inputs, **named)
    return checkpoint(forward, *inputs, use_reentrant=False, **named)
