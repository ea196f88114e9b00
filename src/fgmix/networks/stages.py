"""Find the stages and residual blocks of a network by what runs: where style methods and manifold mixup act."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby

from torch import nn

from fgmix.errors import UserError
from fgmix.networks._trace import BATCH, Call, Trace, network_name, trace


@dataclass(frozen=True)
class FeatureMap:
    """What a module of a network puts out, where that is one feature map.

    Args:
        name: of the module, as the network names it.
        channels: c.
        size: (h, w) in the traced forward pass.
        channels_last: laid out (n, h, w, c), as Swin's are, instead of (n, c, h, w).
    """

    name: str
    channels: int
    size: tuple[int, int]
    channels_last: bool


@dataclass(frozen=True)
class Stage:
    """The part of a network that works on maps of one size.

    Args:
        entry: name of the module whose input enters the stage.
        end: the map that leaves the stage.
    """

    entry: str
    end: FeatureMap


def stages(featurizer: nn.Module) -> list[Stage]:
    """The stages of a network, in the order in which they run.

    Blocks that follow one another on maps of one size make a stage, a block being a module that adds or concatenates
    the results of branches. The stage ends with the outermost module around its last block that puts out one map of
    that size, on which all that follows depends. What runs before the first block, the stem, is no stage.

    >>> from fgmix.networks import build_featurizer
    >>> [stage.end.name for stage in stages(build_featurizer("small_cnn", (3, 32, 32)))]
    ['net.layer1', 'net.layer2', 'net.layer3']
    """
    traced = trace(featurizer)
    maps = {call: found for call, found in _maps(traced).items() if call.is_bottleneck}
    # A block may put out tokens inside a module that puts out a map, as in PVT: the innermost map around it counts.
    around = [next((c for c in call.upwards() if c in maps), None) for call in traced.calls if call.joins]
    runs = [list(run) for _, run in groupby(filter(None, around), key=lambda call: maps[call].size)]
    if not runs:
        raise _refusal(featurizer, traced, "stages", any(call.joins for call in traced.calls))
    return [_stage(run, maps, {c for other in runs if other is not run for c in other}) for run in runs]


def residual_blocks(featurizer: nn.Module) -> list[FeatureMap]:
    """What the residual blocks of a network put out, in the order in which they run.

    A residual block is a module whose own forward adds two maps. Where such modules are nested, the outermost is the
    block. A network is refused if any of its blocks puts out something else than one map.

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
    """The stage made of the calls in `run`, in a network that has `others` in other stages."""

    def of_its_size(call: Call) -> list[Call]:
        return [c for c in call.upwards() if c in maps and maps[c].size == maps[call].size]

    elsewhere = {call for other in others for call in other.upwards()}
    entries = [call for call in of_its_size(run[0]) if call not in elsewhere] or run[:1]
    return Stage(entries[-1].name, maps[of_its_size(run[-1])[-1]])


def _maps(traced: Trace) -> dict[Call, FeatureMap]:
    """The calls that put out one map; without modules that run more than once, on all of whose runs a hook acts."""
    times = Counter(call.name for call in traced.calls)
    readings = {call: _readings(call, traced.image) for call in traced.calls if times[call.name] == 1}
    # As many channels as rows and columns leave the layout open; then it is that of the network's other blocks.
    known = [found[0].channels_last for call, found in readings.items() if call.adds and len(found) == 1]
    preferred = -1 if known and all(known) else 0
    return {call: found[preferred] for call, found in readings.items() if found}


def _readings(call: Call, image: tuple[int, int]) -> list[FeatureMap]:
    """An output read as a map: with channels first, with channels last, as both, or as neither."""
    if call.shape is None or len(call.shape) != 4 or call.shape[0] != BATCH:
        return []
    _, a, b, c = call.shape
    readings = [FeatureMap(call.name, a, (b, c), False), FeatureMap(call.name, c, (a, b), True)]
    return [reading for reading in readings if _is_scaled(reading.size, image)]


def _is_scaled(size: tuple[int, int], image: tuple[int, int]) -> bool:
    """Whether `size` can be that of `image` divided by one number, each side rounded by less than a pixel."""
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
