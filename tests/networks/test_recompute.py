"""Activation checkpointing: the same gradients from fewer stored activations."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from fgmix.errors import UserError
from fgmix.networks import build_featurizer
from fgmix.networks.parts import recompute_blocks
from fgmix.networks.stages import find_blocks

BACKBONES = ["small_cnn", "resnet18", "test_vit", "test_convnext", "tf_efficientnet_lite0"]


def differentiate(network: nn.Module, x: Tensor) -> tuple[list[Tensor], int]:
    """The gradients of the weights, and the bytes that the forward pass stores for them."""
    stored: dict[int, int] = {}

    def store(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, nn.Parameter):
            stored[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    def store_input(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        store(inputs[0])

    torch.manual_seed(0)
    blocks = [network.get_submodule(name) for name in find_blocks(network)]
    hooks = [block.register_forward_pre_hook(store_input) for block in blocks]
    with torch.autograd.graph.saved_tensors_hooks(store, lambda tensor: tensor):
        z = network(x)
    z.square().sum().backward()
    for hook in hooks:
        hook.remove()
    return [p.grad for p in network.parameters() if p.grad is not None], sum(stored.values())


@pytest.mark.parametrize("backbone", BACKBONES)
def test_gradients_are_equal_and_fewer_bytes_are_stored(backbone: str) -> None:
    torch.manual_seed(0)
    plain = build_featurizer(backbone, (3, 64, 64), dropout=0.1, freeze_bn=True)
    repeated = copy.deepcopy(plain)
    recompute_blocks(repeated)
    assert list(repeated.state_dict()) == list(plain.state_dict())
    x = torch.randn(2, 3, 64, 64)
    (expected, much), (found, little) = differentiate(plain, x), differentiate(repeated, x)
    assert len(expected) == len(found)
    assert all(map(torch.equal, expected, found))
    assert little < 0.6 * much


def test_a_copy_computes_with_its_own_weights() -> None:
    network = build_featurizer("small_cnn", (3, 16, 16))
    recompute_blocks(network)
    other = copy.deepcopy(network)
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    z = other(torch.randn(2, 3, 16, 16))
    z.sum().backward()
    assert not z.any()
    assert all(p.grad is None for p in network.parameters())


def test_batch_norm_that_trains_and_networks_without_blocks_are_refused() -> None:
    for network in (build_featurizer("resnet18", (3, 32, 32)), build_featurizer("mlp", (5,))):
        with pytest.raises(UserError, match="checkpoint-activations"):
            recompute_blocks(network)
