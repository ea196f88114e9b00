"""Act on parts of a network: change or record their outputs, freeze the first ones, or start from one of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from fgmix.errors import UserError, unknown
from fgmix.networks.featurizer import Featurizer
from fgmix.networks.stages import FeatureMap, Stage, copy_for_evaluation, image_shape, network_name, sections

N = TypeVar("N", bound=nn.Module)


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


def freeze_sections(featurizer: nn.Module, upto: int | str) -> None:
    """Freeze the parameters of the first part of a network.

    In a `Featurizer` its layers also stay in evaluation mode (`Featurizer.train`).

    Args:
        featurizer: the network.
        upto: number of first sections, which are frozen with the stem, the name of the last module to freeze, or "all".
    """
    if upto == "all":
        featurizer.requires_grad_(False)
    if upto in (0, "all"):
        return
    end, reached = find_end(featurizer, upto), False
    for name, module in featurizer.named_modules():  # a module comes before those within it
        within = f"{name}.".startswith(f"{end}.")
        if reached and not within:
            break
        reached |= within
        for parameter in module.parameters(recurse=False):
            parameter.requires_grad_(False)


def find_end(featurizer: nn.Module, upto: int | str) -> str:
    """Return the name of the module that ends the first `upto` sections, or of the one that is called so."""
    if isinstance(upto, str):
        names = [name for name, _ in getattr(featurizer, "net", featurizer).named_modules() if name]
        if upto not in names:
            raise unknown(f"module of {network_name(featurizer)}", upto, names)
        return f"net.{upto}" if hasattr(featurizer, "net") else upto
    known = sections(featurizer)
    if upto > len(known):
        raise UserError(
            f"Expected at most {len(known)} sections to freeze, as many as {network_name(featurizer)} has. "
            f"Found {upto}. Lower --freeze."
        )
    return known[upto - 1].end.name


class Front(nn.Module):
    """The first part of a network, x → the output of the module `end`. The whole network runs: it is used once."""

    def __init__(self, featurizer: nn.Module, end: str) -> None:
        super().__init__()
        self.featurizer, self.end = featurizer, end

    def forward(self, x: Tensor) -> Tensor:
        outputs: list[Tensor] = []  # several if the network is evaluated in pieces
        module = self.featurizer.get_submodule(self.end)
        with module.register_forward_hook(lambda _module, _inputs, h: outputs.append(h)):
            self.featurizer(x)
        return torch.cat(outputs)


def split_network(featurizer: Featurizer, upto: int | str) -> tuple[Front, Featurizer]:
    """Split a network after its first part into `front`, images → a map, and `rest`, the map → codes.

    The rest is a copy whose layers before the cut are the identity, so that its tensors keep their names. Whether it
    computes the same codes depends on what the network computes between its layers; this is tested.
    """
    end = find_end(featurizer, upto)
    front, rest = Front(featurizer, end), _drop_layers_before(copy.deepcopy(featurizer), end)
    parent, _, name = end.rpartition(".")
    setattr(rest.get_submodule(parent), name, nn.Identity())
    inner, outer = Front(copy_for_evaluation(featurizer), end), copy_for_evaluation(rest)
    x = _random_images(featurizer)
    try:
        with torch.no_grad():
            h, z = inner(x), inner.featurizer(x)
            same = h.ndim == 4 and torch.allclose(outer(h), z, rtol=1e-3, atol=1e-5)
    except Exception:  # a layer that cannot follow the identity, or a module whose output is not one tensor
        same = False
    if not same:
        raise UserError(
            f"Expected a network that can start from the output of its module `{end}`. Found "
            f"{network_name(featurizer)}, which cannot. Drop --views, or use a convolutional backbone."
        )
    rest.input_shape = tuple(h.shape[1:])
    return front, rest


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


def _drop_layers_before(network: N, entry: str) -> N:
    for parent, name, _ in list(layers_before(network, entry)):
        setattr(parent, name, nn.Identity())
    return network


@torch.no_grad()
def _gives_the_codes(featurizer: nn.Module, entry: str) -> bool:
    whole, rest = copy_for_evaluation(featurizer), _drop_layers_before(copy_for_evaluation(featurizer), entry)
    inputs: list[Any] = []
    whole.get_submodule(entry).register_forward_pre_hook(lambda _module, args: inputs.extend(args))
    try:
        z = whole(_random_images(featurizer))
        return torch.allclose(rest(*inputs), z, rtol=1e-3, atol=1e-5)
    except Exception:  # a layer that cannot follow the identity, or a stage with several inputs
        return False


def _random_images(featurizer: nn.Module) -> Tensor:
    """Draw two images of the size that a network was built for, always the same."""
    x = torch.rand(2, *(image_shape(featurizer) or ()), generator=torch.Generator().manual_seed(0))
    return x.to(next(featurizer.parameters()))
