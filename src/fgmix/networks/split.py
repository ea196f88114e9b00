"""Split a network at the start of a stage."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from fgmix.errors import UserError
from fgmix.networks._trace import evaluating_copy, image_shape, network_name
from fgmix.networks.stages import Stage


def layers_before(network: nn.Module, entry: str) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """(parent, name, layer) of the layers registered before the module named `entry`, with subtrees as one layer.

    >>> network = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 2)))
    >>> [layer for _, _, layer in layers_before(network, "1.1")]
    [Linear(in_features=2, out_features=2, bias=True), ReLU()]
    """
    head, _, tail = entry.partition(".")
    for name, child in network.named_children():
        if name == head:
            break
        yield network, name, child
    if tail:
        yield from layers_before(network.get_submodule(head), tail)


def network_from(featurizer: nn.Module, stage: Stage) -> nn.Module:
    """A copy of a network that starts at a stage: it maps the input of the stage to the network's codes.

    Layers before the stage become the identity. Whether the copy then computes the same codes depends on what the
    network computes between its layers, so this is tested first.
    """
    if stage.end.channels_last or not _gives_the_codes(featurizer, stage.entry):
        raise UserError(
            f"Expected a network that can start from the maps (n, c, h, w) that enter its module `{stage.entry}`. "
            f"Found {network_name(featurizer)}, which cannot. Use a backbone such as `small_cnn` or `resnet18`."
        )
    return _without_layers_before(copy.deepcopy(featurizer), stage.entry)


def _without_layers_before(network: nn.Module, entry: str) -> nn.Module:
    for parent, name, _ in list(layers_before(network, entry)):
        setattr(parent, name, nn.Identity())
    return network


@torch.no_grad()
def _gives_the_codes(featurizer: nn.Module, entry: str) -> bool:
    whole, rest = evaluating_copy(featurizer), _without_layers_before(evaluating_copy(featurizer), entry)
    entered: list[Any] = []
    whole.get_submodule(entry).register_forward_pre_hook(lambda _module, inputs: entered.append(*inputs))
    like, shape = next(whole.parameters()), image_shape(featurizer) or ()
    x = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)).to(like)
    try:
        z = whole(x)
        return torch.allclose(rest(*entered), z, rtol=1e-3, atol=1e-5)
    except Exception:  # a layer that cannot follow the identity, or a stage with several inputs
        return False
