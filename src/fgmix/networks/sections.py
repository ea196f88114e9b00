"""Divide a backbone into sections, in execution order: the stages of a convolutional network, or quarters of the blocks
of a transformer. MIRO compares features between sections, and `--freeze` freezes the first ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from fgmix.errors import UserError
from fgmix.networks._trace import BATCH, Call, image_shape, network_name, trace
from fgmix.networks.split import layers_before
from fgmix.networks.stages import stages

QUARTERS = 4  # sections of a transformer, as most convolutional networks have four stages


@dataclass(frozen=True)
class Section:
    """A contiguous part of a network.

    Args:
        entry: name of the module whose input is the section's input.
        end: name of the module whose output is the section's output.
        axis: dimension of the channels: 1 for maps (n, c, h, w), 3 for maps (n, h, w, c), 2 for tokens (n, t, c).
    """

    entry: str
    end: str
    axis: int


def sections(featurizer: nn.Module) -> list[Section]:
    """The sections of a network; empty if it has neither stages nor blocks of tokens.

    The stem, which runs before the first section, is not a section.

    >>> from fgmix.networks import build_featurizer
    >>> [section.end for section in sections(build_featurizer("small_cnn", (3, 32, 32)))]
    ['net.layer1', 'net.layer2', 'net.layer3']
    """
    if image_shape(featurizer) is None:
        return []
    try:
        found = stages(featurizer)
    except UserError:
        return _quarters([call.name for call in _token_blocks(featurizer)])
    return [Section(stage.entry, stage.end.name, 3 if stage.end.channels_last else 1) for stage in found]


@contextmanager
def recording(network: nn.Module, places: Sequence[Section]) -> Iterator[list[Tensor]]:
    """Within the block, forward passes append the input of the first of `places` and the output of each of them.

    >>> import torch
    >>> network = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4))
    >>> with recording(network, [Section("0", "0", 1), Section("1", "1", 1)]) as features:
    ...     _ = network(torch.zeros(5, 2))
    >>> [tuple(feature.shape) for feature in features]
    [(5, 2), (5, 3), (5, 4)]
    """
    features: list[Tensor] = []

    def note_input(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
        features.append(inputs[0])

    def note_output(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
        features.append(output)

    with ExitStack() as stack:
        for place in places[:1]:
            stack.enter_context(network.get_submodule(place.entry).register_forward_pre_hook(note_input))
        for place in places:
            stack.enter_context(network.get_submodule(place.end).register_forward_hook(note_output))
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
    found = sections(featurizer)
    if count > len(found):
        raise UserError(
            f"Expected at most {len(found)} sections to freeze, as many as {network_name(featurizer)} has. "
            f"Found {count}. Lower --freeze."
        )
    for parameter in _parameters_up_to(featurizer, found[count - 1].end) if count else ():
        parameter.requires_grad_(False)


def _parameters_up_to(network: nn.Module, end: str) -> Iterator[nn.Parameter]:
    """Parameters of the module named `end`, of layers registered before it, and of the enclosing modules themselves."""
    names = end.split(".")
    for depth in range(len(names)):  # enclosing modules: a transformer's class token, for example
        yield from network.get_submodule(".".join(names[:depth])).parameters(recurse=False)
    for _, _, layer in layers_before(network, end):
        yield from layer.parameters()
    yield from network.get_submodule(end).parameters()


def _token_blocks(featurizer: nn.Module) -> list[Call]:
    """Residual blocks whose output is tokens (n, t, c) and a bottleneck; the outermost if they are nested."""
    found = [c for c in trace(featurizer).calls if c.adds and c.is_bottleneck and c.shape and len(c.shape) == 3]
    found = [call for call in found if call.shape and call.shape[0] == BATCH]
    return [call for call in found if not any(outer in found for outer in call.parents())]


def _quarters(blocks: Sequence[str]) -> list[Section]:
    """Four sections with nearly equal numbers of blocks; fewer sections if there are fewer than four blocks.

    >>> [(section.entry, section.end) for section in _quarters(["b0", "b1", "b2", "b3", "b4"])]
    [('b0', 'b0'), ('b1', 'b1'), ('b2', 'b2'), ('b3', 'b4')]
    """
    n = min(QUARTERS, len(blocks))
    bounds = [i * len(blocks) // n for i in range(n + 1)] if n else []
    return [Section(blocks[first], blocks[last - 1], 2) for first, last in pairwise(bounds)]
