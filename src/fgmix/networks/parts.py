"""Act on parts of a network: change or record their outputs, freeze the first ones, or start from one of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fgmix.errors import UserError
from fgmix.networks.stages import FeatureMap, Stage, sections
from fgmix.networks.trace import copy_for_evaluation, image_shape, network_name


@contextmanager
def change_outputs(modules: Iterable[nn.Module], change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace the output h of each of `modules` by `change(h)` within the block.

    The hooks are removed after the block, so evaluation, averaging, copies and exports are not affected. They run
    before permanent hooks, such as SelfNorm's.

    >>> layer = nn.Identity()
    >>> with change_outputs([layer], lambda h: 2 * h):
    ...     layer(torch.tensor(3.0))
    tensor(6.)
    >>> layer(torch.tensor(3.0))
    tensor(3.)
    """
    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(module.register_forward_hook(lambda _module, _inputs, h: change(h), prepend=True))
        yield


@contextmanager
def change_maps(network: nn.Module, maps: Iterable[FeatureMap], change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace each of `maps` by `change(map)` within the block; `change` gets (n, c, h, w) for either layout."""

    def change_channels_last(h: Tensor) -> Tensor:
        return change(h.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)

    with ExitStack() as stack:
        for place in maps:
            module = network.get_submodule(place.name)
            stack.enter_context(change_outputs([module], change_channels_last if place.channels_last else change))
        yield


@contextmanager
def record_features(network: nn.Module, places: Sequence[Stage]) -> Iterator[list[Tensor]]:
    """Append the input of the first of `places` and the output of each of them in forward passes within the block.

    >>> network = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4))
    >>> places = [Stage(name, FeatureMap(name, 3, (1,), 1)) for name in "01"]
    >>> with record_features(network, places) as features:
    ...     _ = network(torch.zeros(5, 2))
    >>> [tuple(feature.shape) for feature in features]
    [(5, 2), (5, 3), (5, 4)]
    """
    features: list[Tensor] = []

    def record_input(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
        features.append(inputs[0])

    def record_output(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
        features.append(output)

    with ExitStack() as stack:
        for place in places[:1]:
            stack.enter_context(network.get_submodule(place.entry).register_forward_pre_hook(record_input))
        for place in places:
            stack.enter_context(network.get_submodule(place.end.name).register_forward_hook(record_output))
        yield features


def freeze_sections(featurizer: nn.Module, count: int) -> None:
    """Freeze the parameters of the stem and of the first `count` sections of a network.

    In a `Featurizer` their layers also stay in evaluation mode (`Featurizer.train`).

    >>> from fgmix.networks import build_featurizer
    >>> network = build_featurizer("small_cnn", (3, 32, 32))
    >>> freeze_sections(network, 2)
    >>> sorted({name.split(".")[1] for name, p in network.named_parameters() if p.requires_grad})
    ['layer3']
    """
    known = sections(featurizer)
    if count > len(known):
        raise UserError(
            f"Expected at most {len(known)} sections to freeze, as many as {network_name(featurizer)} has. "
            f"Found {count}. Lower --freeze."
        )
    for parameter in _parameters_up_to(featurizer, known[count - 1].end.name) if count else ():
        parameter.requires_grad_(False)


def _parameters_up_to(network: nn.Module, end: str) -> Iterator[nn.Parameter]:
    """Yield parameters of the module `end`, of layers registered before it, and of the enclosing modules themselves."""
    names = end.split(".")
    for depth in range(len(names)):  # enclosing modules: a transformer's class token, for example
        yield from network.get_submodule(".".join(names[:depth])).parameters(recurse=False)
    for _, _, layer in layers_before(network, end):
        yield from layer.parameters()
    yield from network.get_submodule(end).parameters()


def layers_before(network: nn.Module, entry: str) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """Yield (parent, name, layer) of the layers registered before the module `entry`, with subtrees as one layer.

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
