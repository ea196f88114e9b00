"""Run a network once and record which modules ran, the shapes of their outputs, and where maps were added.

Neither names nor containers matter, and a module that is registered but never called is not recorded.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.overrides import TorchFunctionMode

from fgmix.errors import UserError

SIDE = 64  # image size at which networks that accept any size are traced: enough for five halvings, and fast
BATCH = 2  # distinguishes maps (2, …) from position codes (1, …) that are broadcast over a batch
ADDITIONS = ("add", "add_", "__add__", "__iadd__")
CONCATENATIONS = ("cat", "concat", "concatenate")


@dataclass(eq=False)
class Call:
    """One call of a module.

    Args:
        name: name of the module in the network.
        parent: the call that made this one.
        adds: the module's own forward adds two tensors of the same shape, as residual blocks do.
        concatenates: the module's own forward concatenates maps, as dense and inception blocks do.
        shape: shape of its output, if that is one tensor.
        is_bottleneck: the network's output depends on its input only through this output.
    """

    name: str
    parent: Call | None
    adds: bool = False
    concatenates: bool = False
    shape: torch.Size | None = None
    is_bottleneck: bool = False

    @property
    def joins(self) -> bool:
        """Whether the module's own forward joins branches."""
        return self.adds or self.concatenates

    def parents(self) -> Iterator[Call]:
        """The enclosing calls, from the innermost to that of the network itself."""
        if self.parent is not None:
            yield from self.parent.upwards()

    def upwards(self) -> Iterator[Call]:
        """This call, then its parents."""
        yield self
        yield from self.parents()


@dataclass(frozen=True)
class Trace:
    """The calls in the order in which they returned, and the (height, width) of the images."""

    calls: list[Call]
    image: tuple[int, int]


def trace(featurizer: nn.Module) -> Trace:
    """Run `featurizer` on two blank images of 64×64 pixels, or of its own size if it accepts no other.

    A copy runs in evaluation mode: the network's weights, statistics, modes and hooks, and the state of the random
    number generator, do not change.
    """
    own = image_shape(featurizer)
    if own is None:
        return Trace([], (0, 0))
    try:
        return _traced(featurizer, (own[0], SIDE, SIDE))
    except Exception:
        pass
    try:
        return _traced(featurizer, own)
    except Exception as error:
        raise UserError(
            f"Expected a network that runs on images of shape {own}. Found {network_name(featurizer)}, which does not "
            f"({type(error).__name__} {error}). Use another backbone or another image size."
        ) from error


def network_name(featurizer: nn.Module) -> str:
    """The class of a backbone, for error messages."""
    return type(getattr(featurizer, "net", featurizer)).__name__


def image_shape(featurizer: nn.Module) -> tuple[int, int, int] | None:
    """(c, h, w) of a network's input images; None if its inputs are arrays of features."""
    shape = getattr(featurizer, "input_shape", None)
    if shape is None:  # not a `Featurizer`
        convolutions = [module for module in featurizer.modules() if isinstance(module, nn.Conv2d)]
        return (convolutions[0].in_channels, SIDE, SIDE) if convolutions else None
    return tuple(shape) if len(shape) == 3 else None


def evaluating_copy(network: nn.Module) -> nn.Module:
    """A copy in evaluation mode that shares the weights and nothing else."""
    return copy.deepcopy(network, {id(parameter): parameter for parameter in network.parameters()}).eval()


def _traced(featurizer: nn.Module, shape: tuple[int, int, int]) -> Trace:
    network, recorder = evaluating_copy(featurizer), _Recorder()
    like = next(network.parameters(), torch.empty(()))
    # The autograd graph records the dependencies; no gradient is computed.
    x = torch.zeros(BATCH, *shape, dtype=like.dtype, device=like.device, requires_grad=True)
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(torch.enable_grad())
        for name, module in network.named_modules():
            stack.enter_context(module.register_forward_pre_hook(recorder.enter(name)))
            stack.enter_context(module.register_forward_hook(recorder.leave))
        stack.enter_context(recorder)
        images = x.clone()  # a network may modify its input in place, which autograd forbids for a leaf
        z = network(images)
    narrow = _bottlenecks(z.grad_fn, images.grad_fn)
    for call in recorder.calls:
        call.is_bottleneck = recorder.source.get(call) in narrow
    return Trace(recorder.calls, shape[1:])


class _Recorder(TorchFunctionMode):
    """Records calls, additions and concatenations while a network runs."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.source: dict[Call, Node | None] = {}  # the operation that computed each call's output
        self._running: list[Call] = []

    def enter(self, name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any) -> None:
            self._running.append(Call(name, self._running[-1] if self._running else None))

        return hook

    def leave(self, _module: nn.Module, _inputs: Any, output: Any) -> None:
        call = self._running.pop()
        if isinstance(output, Tensor):
            call.shape = output.shape
            self.source[call] = output.grad_fn  # read now: a later in-place operation replaces it
        self.calls.append(call)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._running:
            call, name = self._running[-1], getattr(func, "__name__", "")
            call.adds |= name in ADDITIONS and _have_one_shape(*(*args, *kwargs.values())[:2])
            call.concatenates |= name in CONCATENATIONS and all(t.ndim == 4 for t in (*args, *kwargs.values())[0])
        return func(*args, **kwargs)


def _have_one_shape(a: object, b: object) -> bool:
    """Whether both are tensors of the same shape with an entry per image: maps, or tokens."""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        return False
    return a.shape == b.shape and a.ndim > 2 and len(a) % BATCH == 0


def _bottlenecks(end: Node | None, start: Node | None) -> set[Node | None]:
    """Operations on every path from `start` to `end`.

    In topological order, these are the operations that no edge skips.
    """
    reached: dict[Node | None, int] = {}  # operations that depend on the start, and their place in the order
    furthest: list[int] = []  # the last place that uses each of them
    for node in _inputs_first(end):
        sources = [reached[n] for n, _ in node.next_functions if n in reached]
        if node is start or sources:
            reached[node] = len(furthest)
            furthest.append(len(furthest))
            for place in sources:
                furthest[place] = reached[node]
    jumps = accumulate(furthest, max, initial=0)  # the furthest place that an edge from before each place reaches
    return {operation for (operation, place), jump in zip(reached.items(), jumps) if jump <= place}


def _inputs_first(end: Node | None) -> Iterator[Node]:
    """`end` and all operations that it depends on, each after its inputs. Without recursion: networks are deep."""
    seen: set[Node | None] = {None}
    stack: list[tuple[Node | None, bool]] = [(end, False)]
    while stack:
        node, done = stack.pop()
        if done and node is not None:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(source, False) for source, _ in node.next_functions]  # type: ignore[union-attr]
