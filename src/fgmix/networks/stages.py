"""Find the parts of a network by tracing it.

Style methods and manifold mixup act on stages or residual blocks. MIRO compares features between sections, of which
`--freeze` freezes the first ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from torch import nn

from fgmix.errors import UserError
from fgmix.networks.trace import BATCH, Call, Trace, bottleneck_test, image_shape, network_name, trace

QUARTERS = 4  # sections of a transformer, as most convolutional networks have four stages


@dataclass(frozen=True)
class FeatureMap:
    """The output of a module of a network, if that is one feature map or one set of tokens.

    Args:
        name: name of the module in the network.
        channels: c.
        size: (h, w) of a map in the traced forward pass, or the number of tokens (t,).
        axis: of the channels: 1 for maps (n, c, h, w), 3 for maps (n, h, w, c) as in Swin, 2 for tokens (n, t, c).
    """

    name: str
    channels: int
    size: tuple[int, ...]
    axis: int

    @property
    def channels_last(self) -> bool:
        """Whether the shape is (n, h, w, c)."""
        return self.axis == 3


@dataclass(frozen=True)
class Stage:
    """The part of a network whose blocks have maps of one size, or a quarter of the blocks of a transformer.

    Args:
        entry: name of the module whose input is the stage's input.
        end: the stage's output.
    """

    entry: str
    end: FeatureMap


def stages(featurizer: nn.Module) -> list[Stage]:
    """Find the stages of a network, in execution order.

    A block is a module that adds or concatenates the results of branches. Consecutive blocks with maps of one size form
    a stage. It ends with the outermost module around its last block whose output is one map of that size and a
    bottleneck: all that follows depends on it alone. The stem, which runs before the first block, is not a stage.

    >>> from fgmix.networks import build_featurizer
    >>> [stage.end.name for stage in stages(build_featurizer("small_cnn", (3, 32, 32)))]
    ['net.layer1', 'net.layer2', 'net.layer3']
    """
    traced = trace(featurizer)
    blocks, maps = [call for call in traced.calls if call.joins], _find_maps(traced)
    is_bottleneck = bottleneck_test(featurizer, traced.image)

    def bottlenecks(block: Call) -> list[Call]:
        """List the bottlenecks of one size around a block, the outermost last; none without a map around it."""
        # A block may output tokens inside a module that outputs a map, as in PVT: the innermost map around it counts.
        around = [call for call in block.upwards() if call in maps]
        for _, group in groupby(around, key=lambda call: maps[call].size):
            calls = list(group)
            while calls and not is_bottleneck(calls[-1]):  # the outermost first, which blocks share: fewer tests
                calls.pop()
            if calls:
                return calls
        return []

    def entry(run: list[list[Call]], others: list[list[list[Call]]]) -> Call:
        """Find the outermost bottleneck around the first block of a run that holds no block of another run."""
        elsewhere = {call for other in others for chain in other for call in chain[0].upwards()}
        first = list(filter(is_bottleneck, run[0]))
        return [call for call in first if call not in elsewhere][-1] if first[0] not in elsewhere else first[0]

    chains = [chain for chain in map(bottlenecks, blocks) if chain]
    runs = [list(run) for _, run in groupby(chains, key=lambda chain: maps[chain[0]].size)]
    if not runs:
        raise _refuse(featurizer, traced, "stages", bool(blocks))
    return [Stage(entry(run, [r for r in runs if r is not run]).name, maps[run[-1][-1]]) for run in runs]


def residual_blocks(featurizer: nn.Module) -> list[FeatureMap]:
    """Find the outputs of the residual blocks of a network, in execution order.

    A residual block is a module whose own forward adds two maps. If such modules are nested, the outermost is the
    block. An error is raised if the output of any block is not one map.

    >>> from fgmix.networks import build_featurizer
    >>> [(block.name, block.channels) for block in residual_blocks(build_featurizer("small_cnn", (3, 32, 32)))]
    [('net.layer1.0', 16), ('net.layer2.0', 48), ('net.layer3.0', 96)]
    """
    traced = trace(featurizer)
    maps = _find_maps(traced)
    blocks = _outermost([call for call in traced.calls if call.adds], lambda outer: outer.adds and outer in maps)
    if not blocks or any(block not in maps for block in blocks):
        raise _refuse(featurizer, traced, "residual blocks", bool(blocks))
    return [maps[block] for block in blocks]


def sections(featurizer: nn.Module) -> list[Stage]:
    """Find the stages of a network, or quarters of the blocks of a transformer; none if it has neither.

    >>> from fgmix.networks import build_featurizer
    >>> [section.end.name for section in sections(build_featurizer("vit_tiny_patch16_224", (3, 32, 32)))]
    ['net.blocks.2', 'net.blocks.5', 'net.blocks.8', 'net.blocks.11']
    """
    if image_shape(featurizer) is None:
        return []
    try:
        return stages(featurizer)
    except UserError:
        return _divide_into_quarters(_find_token_blocks(featurizer))


def _find_maps(traced: Trace) -> dict[Call, FeatureMap]:
    """Find the calls whose output is one map; without modules that run more than once: a hook acts on every run."""
    times = Counter(call.name for call in traced.calls)
    readings = {call: _read(call, traced.image) for call in traced.calls if times[call.name] == 1}
    # If channels, rows and columns are equal, the layout is ambiguous; it is then that of the network's other blocks.
    certain = [maps[0].channels_last for call, maps in readings.items() if call.adds and len(maps) == 1]
    preferred = -1 if certain and all(certain) else 0
    return {call: maps[preferred] for call, maps in readings.items() if maps}


def _read(call: Call, image: tuple[int, ...]) -> list[FeatureMap]:
    """List the possible readings of an output as a map: channels first, channels last, both, or none."""
    if call.shape is None or len(call.shape) != 4 or call.shape[0] != BATCH:
        return []
    _, a, b, c = call.shape
    readings = [FeatureMap(call.name, a, (b, c), 1), FeatureMap(call.name, c, (a, b), 3)]
    return [reading for reading in readings if _is_scaled(reading.size, image)]


def _is_scaled(size: tuple[int, ...], image: tuple[int, ...]) -> bool:
    """Whether `size` can be the size of `image` divided by one number, up to rounding by less than a pixel."""
    _, height, width = image
    return abs(size[0] * width - size[1] * height) < max(height, width)


def _find_token_blocks(featurizer: nn.Module) -> list[FeatureMap]:
    """Find residual blocks whose output is tokens (n, t, c) and a bottleneck; the outermost if they are nested."""
    traced = trace(featurizer)
    times, is_bottleneck = Counter(call.name for call in traced.calls), bottleneck_test(featurizer, traced.image)
    shapes = {call: call.shape for call in traced.calls if call.adds and times[call.name] == 1 and call.shape}
    blocks = [call for call, shape in shapes.items() if len(shape) == 3 and shape[0] == BATCH and is_bottleneck(call)]
    return [FeatureMap(c.name, shapes[c][2], (shapes[c][1],), 2) for c in _outermost(blocks, set(blocks).__contains__)]


def _outermost(calls: Sequence[Call], holds: Callable[[Call], bool]) -> list[Call]:
    """Leave out calls that were made within a call for which `holds` is true."""
    return [call for call in calls if not any(holds(outer) for outer in call.upwards() if outer is not call)]


def _divide_into_quarters(blocks: Sequence[FeatureMap]) -> list[Stage]:
    """Form four sections with nearly equal numbers of blocks; fewer sections if there are fewer than four blocks.

    >>> blocks = [FeatureMap(f"b{i}", 8, (5,), 2) for i in range(5)]
    >>> [(section.entry, section.end.name) for section in _divide_into_quarters(blocks)]
    [('b0', 'b0'), ('b1', 'b1'), ('b2', 'b2'), ('b3', 'b4')]
    """
    n = min(QUARTERS, len(blocks))
    bounds = [i * len(blocks) // n for i in range(n + 1)] if n else []
    return [Stage(blocks[first].name, blocks[last - 1]) for first, last in pairwise(bounds)]


def _refuse(featurizer: nn.Module, traced: Trace, needed: str, has_blocks: bool) -> UserError:
    if not _find_maps(traced):
        reason = "which has no feature maps"
    elif not has_blocks:
        reason = f"which has no {needed}"
    else:
        reason = "whose blocks put out tokens or several maps instead of one map"
    return UserError(
        f"Expected a convolutional network, on whose {needed} this method works. "
        f"Found {network_name(featurizer)}, {reason}. Use a backbone such as `small_cnn` or `resnet18`."
    )
