"""Act on parts of a network: change or record their outputs, freeze or recompute them, start from one, count layers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint
from torch.utils.hooks import RemovableHandle

from fgmix.errors import UserError, unknown
from fgmix.networks.featurizer import Featurizer, choose_piece
from fgmix.networks.stages import (
    FeatureMap,
    Stage,
    copy_for_evaluation,
    find_blocks,
    image_shape,
    layer_entries,
    network_name,
    sections,
)

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
    """The first part of a network, x → the output of the module `end`. What comes behind it does not run."""

    def __init__(self, featurizer: nn.Module, end: str) -> None:
        super().__init__()
        self.featurizer, self.end = featurizer, end

    def forward(self, x: Tensor) -> Tensor:
        outputs: list[Tensor] = []

        def stop(_module: nn.Module, _inputs: object, h: Tensor) -> None:
            outputs.append(h)
            raise _Reached

        # On a CPU, as many images as a featurizer evaluates at a time: it would stop after the first of them.
        size = choose_piece(x.shape[2], x.shape[3]) if x.device.type == "cpu" else len(x)
        with self.featurizer.get_submodule(self.end).register_forward_hook(stop):
            for piece in x.split(size):
                with suppress(_Reached):
                    self.featurizer(piece)
        return torch.cat(outputs)


class _Reached(Exception):
    """Ends a forward pass at the last module that is needed."""


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


def _drop_layers_before(network: N, entry: str) -> N:
    """Replace the layers that are registered before the module `entry` by the identity."""
    head, _, tail = entry.partition(".")
    for name in [name for name, _ in network.named_children()]:
        if name == head:
            break
        setattr(network, name, nn.Identity())
    if tail:
        _drop_layers_before(network.get_submodule(head), tail)
    return network


def _random_images(featurizer: nn.Module) -> Tensor:
    """Draw two images of the size that a network was built for, always the same."""
    x = torch.rand(2, *(image_shape(featurizer) or ()), generator=torch.Generator().manual_seed(0))
    return x.to(next(featurizer.parameters()))


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
