"""Find the stages and residual blocks of a network by tracing it: where style methods and manifold mixup act."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby

from torch import nn

from fgmix.errors import UserError
from fgmix.networks._trace import BATCH, Call, Trace, network_name, trace


@dataclass(frozen=True)
class FeatureMap:
    """The output of a module of a network, if that is one feature map.

    Args:
        name: name of the module in the network.
        channels: c.
        size: (h, w) in the traced forward pass.
        channels_last: whether the shape is (n, h, w, c), as in Swin, instead of (n, c, h, w).
    """

    name: str
    channels: int
    size: tuple[int, int]
    channels_last: bool


@dataclass(frozen=True)
class Stage:
    """The part of a network whose blocks have maps of one size.

    Args:
        entry: name of the module whose input is the stage's input.
        end: the stage's output.
    """

    entry: str
    end: FeatureMap


def stages(featurizer: nn.Module) -> list[Stage]:
    """The stages of a network, in execution order.

    A block is a module that adds or concatenates the results of branches. Consecutive blocks with maps of one size form
    a stage. It ends with the outermost module around its last block whose output is one map of that size and a
    bottleneck: all that follows depends on it alone. The stem, which runs before the first block, is not a stage.

    >>> from fgmix.networks import build_featurizer
    >>> [stage.end.name for stage in stages(build_featurizer("small_cnn", (3, 32, 32)))]
    ['net.layer1', 'net.layer2', 'net.layer3']
    """
    traced = trace(featurizer)
    maps = {call: found for call, found in _maps(traced).items() if call.is_bottleneck}
    # A block may output tokens inside a module that outputs a map, as in PVT: the innermost map around it counts.
    around = [next((c for c in call.upwards() if c in maps), None) for call in traced.calls if call.joins]
    runs = [list(run) for _, run in groupby(filter(None, around), key=lambda call: maps[call].size)]
    if not runs:
        raise _refusal(featurizer, traced, "stages", any(call.joins for call in traced.calls))
    return [_stage(run, maps, {c for other in runs if other is not run for c in other}) for run in runs]


def residual_blocks(featurizer: nn.Module) -> list[FeatureMap]:
    """The outputs of the residual blocks of a network, in execution order.

    A residual block is a module whose own forward adds two maps. If such modules are nested, the outermost is the
    block. An error is raised if the output of any block is not one map.

    >>> from fgmix.networks import build_featurizer
    >>> [(block.name, block.channels) for block in residual_blocks(build_featurizer("small_cnn", (3, 32, 32)))]
    [('net.layer1.0', 16), ('net.layer2.0', 48), ('net.layer3.0', 96)]
    """
    traced = trace(featurizer)
    maps = _maps(traced)
    adding = [call for call in traced.calls if call.adds]
    blocks = [call for call in adding if not any(outer.adds and outer in maps for outer in call.parents())]
    if not blocks or any(block not in maps for block in blocks):
        raise _refusal(featurizer, traced, "residual blocks", bool(blocks))
    return [maps[block] for block in blocks]


def _stage(run: list[Call], maps: dict[Call, FeatureMap], others: set[Call]) -> Stage:
    """The stage of the calls in `run`; `others` are the calls of other stages."""

    def of_its_size(call: Call) -> list[Call]:
        return [c for c in call.upwards() if c in maps and maps[c].size == maps[call].size]

    elsewhere = {call for other in others for call in other.upwards()}
    entries = [call for call in of_its_size(run[0]) if call not in elsewhere] or run[:1]
    return Stage(entries[-1].name, maps[of_its_size(run[-1])[-1]])


def _maps(traced: Trace) -> dict[Call, FeatureMap]:
    """The calls whose output is one map; without modules that run more than once, because a hook acts on every run."""
    times = Counter(call.name for call in traced.calls)
    readings = {call: _readings(call, traced.image) for call in traced.calls if times[call.name] == 1}
    # If channels, rows and columns are equal, the layout is ambiguous; it is then that of the network's other blocks.
    known = [found[0].channels_last for call, found in readings.items() if call.adds and len(found) == 1]
    preferred = -1 if known and all(known) else 0
    return {call: found[preferred] for call, found in readings.items() if found}


def _readings(call: Call, image: tuple[int, int]) -> list[FeatureMap]:
    """The possible readings of an output as a map: channels first, channels last, both, or none."""
    if call.shape is None or len(call.shape) != 4 or call.shape[0] != BATCH:
        return []
    _, a, b, c = call.shape
    readings = [FeatureMap(call.name, a, (b, c), False), FeatureMap(call.name, c, (a, b), True)]
    return [reading for reading in readings if _is_scaled(reading.size, image)]


def _is_scaled(size: tuple[int, int], image: tuple[int, int]) -> bool:
    """Whether `size` can be the size of `image` divided by one number, up to rounding by less than a pixel."""
    return abs(size[0] * image[1] - size[1] * image[0]) < max(image)


def _refusal(featurizer: nn.Module, traced: Trace, needed: str, has_blocks: bool) -> UserError:
    if not _maps(traced):
        reason = "which has no feature maps"
    elif not has_blocks:
        reason = f"which has no {needed}"
    else:
        reason = "whose blocks put out tokens or several maps instead of one map"
    return UserError(
        f"Expected a convolutional network, on whose {needed} this method works. "
        f"Found {network_name(featurizer)}, {reason}. Use a backbone such as `small_cnn` or `resnet18`."
    )
