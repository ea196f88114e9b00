"""The layers of a network, counted from its classifier downwards, for learning rates that decay by layer."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from fgmix.errors import UserError
from fgmix.networks.stages import image_shape, layer_entries, network_name

_CLASSIFIER = "fgmix.classifier"  # a name that no pattern of timm matches


def find_layers(featurizer: nn.Module) -> dict[str, int]:
    """Return how many layers below the classifier each parameter is, by name.

    The layers of a timm network are timm's: stem, then every block. Those of others are found by running them: stem,
    then every stage, or every block of a transformer.

    >>> from fgmix.networks import build_featurizer
    >>> layers = find_layers(build_featurizer("small_cnn", (3, 32, 32)))
    >>> layers["net.stem.0.weight"], layers["net.layer3.0.conv1.weight"]
    (4, 1)
    """
    for prefix, net in featurizer.named_modules():
        if callable(matcher := getattr(net, "group_matcher", None)):
            depths = _group_as_timm(net, matcher(coarse=False))
            start = f"{prefix}." if prefix else ""
            # A parameter that a method has put around the network, such as an embedding, belongs to the classifier.
            return {name: depths.get(name.removeprefix(start), 0) for name, _ in featurizer.named_parameters()}
    entries = layer_entries(featurizer)
    if not entries:
        raise UserError(
            f"Expected a network with stages or blocks for `layer_decay`. Found {network_name(featurizer)}, which has "
            "none. Set layer_decay to 1, or choose another backbone."
        )
    reached, depths = 0, {}
    for name, module in featurizer.named_modules():  # in order of registration
        reached += name in entries
        for own, _ in module.named_parameters(recurse=False):
            depths[f"{name}.{own}" if name else own] = len(entries) + 1 - reached
    # Parameters of the network itself, such as a projection of its output, are registered before its blocks.
    return depths | dict.fromkeys(_find_last(featurizer, entries[-1]), 1)


def _find_last(featurizer: nn.Module, entry: str) -> list[str]:
    """Find the parameters that are used after the module `entry`: its output is cut off from what comes before."""
    network = copy.deepcopy(featurizer).eval().requires_grad_()
    like = next(network.parameters())
    x = torch.zeros(1, *(image_shape(featurizer) or ()), dtype=like.dtype, device=like.device)
    with (
        torch.enable_grad(),
        network.get_submodule(entry).register_forward_hook(lambda _module, _inputs, h: h.detach()),
    ):
        z: Tensor = network(x)
    if z.requires_grad:
        z.sum().backward()
    return [name for name, p in network.named_parameters() if p.grad is not None]


def _group_as_timm(net: nn.Module, matcher: object) -> dict[str, int]:
    """Count layers as timm does in a network that has a classifier."""
    from timm.models import group_parameters

    named = [*net.named_parameters(), (_CLASSIFIER, None)]
    number: dict[str, int] = group_parameters(SimpleNamespace(named_parameters=lambda: named), matcher, reverse=True)
    return {name: number[_CLASSIFIER] - layer for name, layer in number.items()}
