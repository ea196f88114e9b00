"""Find the parts of a network by running it: stages, residual blocks and sections.

Style methods and manifold mixup act on stages or residual blocks. MIRO compares features between sections, of which
`--freeze` freezes the first ones. A network is run once while every call of a module is recorded; neither names nor
containers matter.

timm's `feature_info` cannot serve instead. Of the 83 families in docs/backbones-tested.md it lists exactly the maps
of our stages in 26. In 26 it adds early maps, which are a stage only if a block computes them (`blocks.0` of
EfficientNet-B1, not of -B0). In 13 it lists other maps, some inside of residual blocks or several as one; in 15 it
lists maps of networks that have no stages, such as tokens; in 3 none.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fgmix.errors import UserError

SIDE = 64  # image size at which networks that accept any size are traced: enough for five halvings, and fast
BATCH = 2  # distinguishes maps (2, …) from position codes (1, …) that are broadcast over a batch
QUARTERS = 4  # sections of a transformer, as most convolutional networks have four stages
ADDITIONS = ("add", "add_", "__add__", "__iadd__")
CONCATENATIONS = ("cat", "concat", "concatenate")


@dataclass(frozen=True)
class FeatureMap:
    """The output of a module of a network, if that is one feature map or one set of tokens."""

    name: str  # of the module in the network
    channels: int
    size: tuple[int, ...]  # (h, w) of a map in the traced forward pass, or the number of tokens (t,)
    axis: int  # of the channels: 1 for maps (n, c, h, w), 3 for maps (n, h, w, c) as in Swin, 2 for tokens (n, t, c)

    @property
    def channels_last(self) -> bool:
        """Whether the shape is (n, h, w, c)."""
        return self.axis == 3


@dataclass(frozen=True)
class Stage:
    """The part of a network whose blocks have maps of one size, or a quarter of the blocks of a transformer."""

    entry: str  # name of the module whose input is the stage's input
    end: FeatureMap  # its output


def stages(featurizer: nn.Module) -> list[Stage]:
    """Find the stages of a network, in execution order.

    A block is a module that adds or concatenates the results of branches. Consecutive blocks with maps of one size form
    a stage. It ends with the outermost module around its last block whose output is one map of that size and a
    bottleneck: all that follows depends on it alone. The stem, which runs before the first block, is not a stage.

    >>> from fgmix.networks import build_featurizer
    >>> [stage.end.name for stage in stages(build_featurizer("small_cnn", (3, 32, 32)))]
    ['net.layer1', 'net.layer2', 'net.layer3']
    """
    trace = _Trace(featurizer)
    parts = _find_stages(trace)
    if not parts:
        raise trace.refuse("stages", any(call.joins for call in trace.calls))
    return parts


def residual_blocks(featurizer: nn.Module) -> list[FeatureMap]:
    """Find the outputs of the residual blocks of a network, in execution order.

    A residual block is a module whose own forward adds two maps. If such modules are nested, the outermost is the
    block. An error is raised if the output of any block is not one map.
    """
    trace = _Trace(featurizer)
    adding = [call for call in trace.calls if call.adds]
    blocks = _outermost(adding, [call for call in adding if call in trace.maps])
    if not blocks or any(block not in trace.maps for block in blocks):
        raise trace.refuse("residual blocks", bool(blocks))
    return [trace.maps[block] for block in blocks]


def sections(featurizer: nn.Module) -> list[Stage]:
    """Find the stages of a network, or quarters of the blocks of a transformer; none if it has neither."""
    trace = _Trace(featurizer)
    return _find_stages(trace) or _divide_into_quarters(_find_token_blocks(trace))


def layer_entries(featurizer: nn.Module) -> list[str]:
    """Name the modules with which the stages of a network, or the blocks of a transformer, begin."""
    trace = _Trace(featurizer)
    return [stage.entry for stage in _find_stages(trace)] or [block.name for block in _find_token_blocks(trace)]


def find_blocks(featurizer: nn.Module) -> list[str]:
    """Name the blocks of a network and modules of their classes, whose output is one tensor; the outermost if nested.

    The first block of a stage has no skip connection in networks such as EfficientNet, but the class of the others.
    """
    kinds = {name: type(module) for name, module in featurizer.named_modules()}
    calls = [call for call in _Trace(featurizer).calls if call.shape and call.name not in ("", "net")]
    joining = {kinds[call.name] for call in calls if call.joins}
    blocks = [call for call in calls if kinds[call.name] in joining]
    return [call.name for call in _outermost(blocks, blocks)]


@dataclass(eq=False)
class _Call:
    """One call of a module."""

    name: str  # of the module in the network
    parent: _Call | None  # the call that made this one
    adds: bool = False  # the module's own forward adds two tensors of the same shape, as residual blocks do
    joins: bool = False  # it adds, or concatenates maps, as dense and inception blocks do
    shape: torch.Size | None = None  # of the output, if that is one tensor and the module runs once (for hooks)

    def upwards(self) -> Iterator[_Call]:
        """Yield this call, then the enclosing ones up to that of the network itself."""
        yield self
        if self.parent is not None:
            yield from self.parent.upwards()


class _Trace(TorchFunctionMode):
    """The calls of a network in one run, in the order in which they returned, and the maps among their outputs.

    It runs on two blank images of 64×64 pixels, or of its own size if it accepts no other. A copy runs in evaluation
    mode: the network's weights, statistics, modes and hooks, and the state of the random number generator, do not
    change. A network of arrays has no calls.
    """

    def __init__(self, featurizer: nn.Module) -> None:
        super().__init__()
        self.featurizer, self.calls, self.maps = featurizer, list[_Call](), dict[_Call, FeatureMap]()
        self.is_bottleneck: Callable[[_Call], bool] = lambda _: False
        own = image_shape(featurizer)
        if own is None:
            return
        for image in ((own[0], SIDE, SIDE), own):
            try:
                self._record(image)
            except Exception as error:
                failure = error
            else:
                self.maps = _find_maps(self.calls, image)
                self.is_bottleneck = _bottleneck_test(featurizer, image)
                return
        raise UserError(
            f"Expected a network that runs on images of shape {own}. Found {network_name(featurizer)}, which does not "
            f"({type(failure).__name__} {failure}). Use another backbone or another image size."
        ) from failure

    def _record(self, image: tuple[int, int, int]) -> None:
        self.calls, self._running, network = [], list[_Call](), copy_for_evaluation(self.featurizer)
        for name, module in network.named_modules():
            module.register_forward_pre_hook(partial(self._enter, name))
            module.register_forward_hook(self._leave)
        with self:
            _run(network, torch.zeros(BATCH, *image))
        times = Counter(call.name for call in self.calls)
        for call in self.calls:
            call.shape = call.shape if times[call.name] == 1 else None

    def _enter(self, name: str, _module: nn.Module, _inputs: Any) -> None:
        self._running.append(_Call(name, self._running[-1] if self._running else None))

    def _leave(self, _module: nn.Module, _inputs: Any, output: Any) -> None:
        call = self._running.pop()
        call.shape = output.shape if isinstance(output, Tensor) else None
        self.calls.append(call)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._running:
            call, name, values = self._running[-1], getattr(func, "__name__", ""), (*args, *kwargs.values())
            call.adds |= name in ADDITIONS and _have_one_shape(*values[:2])
            call.joins |= call.adds or (name in CONCATENATIONS and all(t.ndim == 4 for t in values[0]))
        return func(*args, **kwargs)

    def refuse(self, needed: str, has_blocks: bool) -> UserError:
        """Return an error that says why the network has none of the parts that are needed."""
        if image_shape(self.featurizer) is None:
            shape = getattr(self.featurizer, "input_shape", None)
            found = f"samples of shape {shape}" if shape else network_name(self.featurizer)
            return UserError(
                f"Expected images, because this method works on {needed} of a convolutional network. Found {found}. "
                "Choose another method, such as erm or fgmix."
            )
        reason = "whose blocks put out tokens or several maps instead of one map"
        if not (self.maps and has_blocks):
            reason = f"which has no {needed if self.maps else 'feature maps'}"
        return UserError(
            f"Expected a convolutional network, on whose {needed} this method works. "
            f"Found {network_name(self.featurizer)}, {reason}. Use a backbone such as `small_cnn` or `resnet18`."
        )


def _have_one_shape(a: object, b: object) -> bool:
    """Say whether both are tensors of the same shape with an entry per image: maps, or tokens."""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        return False
    return a.shape == b.shape and a.ndim > 2 and len(a) % BATCH == 0


def _bottleneck_test(featurizer: nn.Module, image: tuple[int, ...]) -> Callable[[_Call], bool]:
    """Return a test whether everything after a call depends on its output alone.

    It cuts the dependence there (`detach`): the codes must then not depend on the image.
    """
    network = copy_for_evaluation(featurizer)
    x = torch.zeros(1, *image, requires_grad=True)

    @cache
    def is_bottleneck(name: str) -> bool:
        with network.get_submodule(name).register_forward_hook(lambda _module, _inputs, h: h.detach()):
            return not _run(network, x).requires_grad

    return lambda call: is_bottleneck(call.name)


@torch.enable_grad()
def _run(network: nn.Module, x: Tensor) -> Tensor:
    """Encode images without changing the state of the random number generator."""
    with torch.random.fork_rng(devices=[]):
        # A clone, because a network may modify its input in place, which autograd forbids for a leaf.
        z: Tensor = network(x.clone().to(next(network.parameters(), x)))
    return z


def copy_for_evaluation(network: nn.Module) -> nn.Module:
    """Return a copy in evaluation mode that shares the values of the weights, without gradients, and nothing else."""
    shared = {id(parameter): nn.Parameter(parameter.detach(), False) for parameter in network.parameters()}
    return copy.deepcopy(network, shared).eval()


def image_shape(featurizer: nn.Module) -> tuple[int, int, int] | None:
    """Return (c, h, w) of a network's input images; None if its inputs are features or signals."""
    shape = getattr(featurizer, "input_shape", None)
    if shape is None:  # not a `Featurizer`
        convolutions = [module for module in featurizer.modules() if isinstance(module, nn.Conv2d)]
        return (convolutions[0].in_channels, SIDE, SIDE) if convolutions else None
    return tuple(shape) if len(shape) == 3 else None


def network_name(featurizer: nn.Module) -> str:
    """Return the class of a backbone, for error messages."""
    return type(getattr(featurizer, "net", featurizer)).__name__


def _find_maps(calls: Sequence[_Call], image: tuple[int, ...]) -> dict[_Call, FeatureMap]:
    """Find the calls whose output is one map."""
    readings = {call: _read(call, image) for call in calls}
    # If channels, rows and columns are equal, the layout is ambiguous; it is then that of the network's other blocks.
    certain = [maps[0].channels_last for call, maps in readings.items() if call.adds and len(maps) == 1]
    preferred = -1 if certain and all(certain) else 0
    return {call: maps[preferred] for call, maps in readings.items() if maps}


def _read(call: _Call, image: tuple[int, ...]) -> list[FeatureMap]:
    """List the possible readings of an output as a map: channels first, channels last, both, or none.

    Its size must be that of the image divided by one number, up to rounding by less than a pixel.
    """
    if call.shape is None or len(call.shape) != 4 or call.shape[0] != BATCH:
        return []
    (_, a, b, c), (_, height, width) = call.shape, image
    readings = [FeatureMap(call.name, a, (b, c), 1), FeatureMap(call.name, c, (a, b), 3)]
    return [m for m in readings if abs(m.size[0] * width - m.size[1] * height) < max(height, width)]


def _find_stages(trace: _Trace) -> list[Stage]:
    """Find the stages of a traced network; none if no block lies within a map that is a bottleneck."""
    maps, is_bottleneck = trace.maps, trace.is_bottleneck

    def bottlenecks(block: _Call) -> list[_Call]:
        """List the maps of one size around a block, up to the outermost bottleneck; none without one."""
        # A block may output tokens inside a module that outputs a map, as in PVT: the innermost map around it counts.
        around = [call for call in block.upwards() if call in maps]
        for _, group in groupby(around, key=lambda call: maps[call].size):
            calls = list(group)
            while calls and not is_bottleneck(calls[-1]):  # the outermost first, which blocks share: fewer tests
                calls.pop()
            if calls:
                return calls
        return []

    def entry(run: list[list[_Call]]) -> str:
        """Find the outermost bottleneck around the first block of a run that holds no block of another run."""
        elsewhere = {call for other in runs if other is not run for chain in other for call in chain[0].upwards()}
        first = list(filter(is_bottleneck, run[0]))
        return ([call for call in first if call not in elsewhere] or first[:1])[-1].name

    chains = [chain for block in trace.calls if block.joins and (chain := bottlenecks(block))]
    runs = [list(run) for _, run in groupby(chains, key=lambda chain: maps[chain[0]].size)]
    return [Stage(entry(run), maps[run[-1][-1]]) for run in runs]


def _find_token_blocks(trace: _Trace) -> list[FeatureMap]:
    """Find residual blocks whose output is tokens (n, t, c) and a bottleneck; the outermost if they are nested."""
    shapes = {call: call.shape for call in trace.calls if call.adds and call.shape is not None}
    tokens = [call for call, shape in shapes.items() if len(shape) == 3 and shape[0] == BATCH]
    blocks = list(filter(trace.is_bottleneck, tokens))
    return [FeatureMap(call.name, shapes[call][2], (shapes[call][1],), 2) for call in _outermost(blocks, blocks)]


def _outermost(calls: Sequence[_Call], around: Collection[_Call]) -> list[_Call]:
    """Leave out calls that were made within another call, one of `around`."""
    return [call for call in calls if not any(outer in around for outer in call.upwards() if outer is not call)]


def _divide_into_quarters(blocks: Sequence[FeatureMap]) -> list[Stage]:
    """Form four sections with nearly equal numbers of blocks; fewer sections if there are fewer than four blocks.

    >>> blocks = [FeatureMap(f"b{i}", 8, (5,), 2) for i in range(5)]
    >>> [(section.entry, section.end.name) for section in _divide_into_quarters(blocks)]
    [('b0', 'b0'), ('b1', 'b1'), ('b2', 'b2'), ('b3', 'b4')]
    """
    n = min(QUARTERS, len(blocks))
    bounds = [i * len(blocks) // n for i in range(n + 1)] if n else []
    return [Stage(blocks[first].name, blocks[last - 1]) for first, last in pairwise(bounds)]
