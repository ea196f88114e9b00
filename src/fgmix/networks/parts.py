"""Act on parts of a network: change or record their outputs, freeze the first ones, or start from one of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from fgmix.errors import UserError
from fgmix.networks.stages import FeatureMap, Stage, copy_for_evaluation, image_shape, network_name, sections


def change_output(module: nn.Module, change: Callable[[Tensor], Tensor]) -> RemovableHandle:
    """Replace the output h of a module by `change(h)` within a `with` block.

    Evaluation, averaging, copies and exports after the block are not affected. The hook runs before permanent ones,
    such as SelfNorm's.
    """
    return module.register_forward_hook(lambda _module, _inputs, h: change(h), prepend=True)


@contextmanager
def change_maps(network: nn.Module, maps: Iterable[FeatureMap], change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace each of `maps` by `change(map)` within the block; `change` gets (n, c, h, w) for either layout."""

    def change_channels_last(h: Tensor) -> Tensor:
        return change(h.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)

    with ExitStack() as stack:
        for place in maps:
            module = network.get_submodule(place.name)
            stack.enter_context(change_output(module, change_channels_last if place.channels_last else change))
        yield


@contextmanager
def record_features(network: nn.Module, places: Sequence[Stage]) -> Iterator[list[Tensor]]:
    """Append the input of the first of `places` and the output of each of them in forward passes within the block."""
    features: list[Tensor] = []
    with ExitStack() as stack:
        for place in places[:1]:
            first = network.get_submodule(place.entry)
            stack.enter_context(first.register_forward_pre_hook(lambda _module, inputs: features.append(inputs[0])))
        for place in places:
            end = network.get_submodule(place.end.name)
            stack.enter_context(end.register_forward_hook(lambda _module, _inputs, h: features.append(h)))
        yield features


def freeze_sections(featurizer: nn.Module, count: int) -> None:
    """Freeze the parameters of the stem and of the first `count` sections of a network.

    In a `Featurizer` their layers also stay in evaluation mode (`Featurizer.train`).
    """
    known = sections(featurizer)
    if count > len(known):
        raise UserError(
            f"Expected at most {len(known)} sections to freeze, as many as {network_name(featurizer)} has. "
            f"Found {count}. Lower --freeze."
        )
    if count == 0:
        return
    end, reached = known[count - 1].end.name, False
    for name, module in featurizer.named_modules():  # a module comes before those within it
        within = f"{name}.".startswith(f"{end}.")
        if reached and not within:
            break
        reached |= within
        for parameter in module.parameters(recurse=False):
            parameter.requires_grad_(False)


def layers_before(network: nn.Module, entry: str) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """Yield (parent, name, layer) of the layers registered before the module `entry`, with subtrees as one layer."""
    head, _, tail = entry.partition(".")
    for name, child in network.named_children():
        if name == head:
            break
        yield network, name, child
    if tail:
        yield from layers_before(network.get_submodule(head), tail)


def copy_from(featurizer: nn.Module, stage: Stage) -> nn.Module:
    """Copy a network from a stage on: the copy maps the input of the stage to the network's codes.

    Layers before the stage become the identity. Whether the copy then computes the same codes depends on what the
    network computes between its layers, so this is tested first.
    """
    if stage.end.channels_last or not _gives_the_codes(featurizer, stage.entry):
        raise UserError(
            f"Expected a network that can start from the maps (n, c, h, w) that enter its module `{stage.entry}`. "
            f"Found {network_name(featurizer)}, which cannot. Use a backbone such as `small_cnn` or `resnet18`."
        )
    return _drop_layers_before(copy.deepcopy(featurizer), stage.entry)


def _drop_layers_before(network: nn.Module, entry: str) -> nn.Module:
    for parent, name, _ in list(layers_before(network, entry)):
        setattr(parent, name, nn.Identity())
    return network


@torch.no_grad()
def _gives_the_codes(featurizer: nn.Module, entry: str) -> bool:
    whole, rest = copy_for_evaluation(featurizer), _drop_layers_before(copy_for_evaluation(featurizer), entry)
    inputs: list[Any] = []
    whole.get_submodule(entry).register_forward_pre_hook(lambda _module, args: inputs.extend(args))
    like, shape = next(whole.parameters()), image_shape(featurizer) or ()
    x = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)).to(like)
    try:
        z = whole(x)
        return torch.allclose(rest(*inputs), z, rtol=1e-3, atol=1e-5)
    except Exception:  # a layer that cannot follow the identity, or a stage with several inputs
        return False
