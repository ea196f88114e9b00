"""Run a network and record which modules ran, the shapes of their outputs, and which of them join branches.

Neither names nor containers matter, and a module that is registered but never called is not recorded.

timm's `feature_info` cannot serve instead. Of the 80 families in docs/backbones.md it lists exactly the maps of our
stages in 26. In 26 it adds early maps, which are a stage only if a block computes them (`blocks.0` of EfficientNet-B1,
not of -B0). In the others it lists further maps, some inside of residual blocks, several maps as one, or tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
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
    """

    name: str
    parent: Call | None
    adds: bool = False
    concatenates: bool = False
    shape: torch.Size | None = None

    @property
    def joins(self) -> bool:
        """Whether the module's own forward joins branches."""
        return self.adds or self.concatenates

    def upwards(self) -> Iterator[Call]:
        """Yield this call, then the enclosing ones up to that of the network itself."""
        yield self
        if self.parent is not None:
            yield from self.parent.upwards()


@dataclass(frozen=True)
class Trace:
    """The calls in the order in which they returned, and the shape (c, h, w) of the images."""

    calls: list[Call]
    image: tuple[int, ...]


def trace(featurizer: nn.Module) -> Trace:
    """Run `featurizer` on two blank images of 64×64 pixels, or of its own size if it accepts no other.

    A copy runs in evaluation mode: the network's weights, statistics, modes and hooks, and the state of the random
    number generator, do not change.
    """
    own = image_shape(featurizer)
    if own is None:
        return Trace([], (0, 0, 0))
    try:
        return _trace(featurizer, (own[0], SIDE, SIDE))
    except Exception:
        pass
    try:
        return _trace(featurizer, own)
    except Exception as error:
        raise UserError(
            f"Expected a network that runs on images of shape {own}. Found {network_name(featurizer)}, which does not "
            f"({type(error).__name__} {error}). Use another backbone or another image size."
        ) from error


def bottleneck_test(featurizer: nn.Module, image: tuple[int, ...]) -> Callable[[Call], bool]:
    """Return a function that tells whether everything after a call depends on its output alone.

    It cuts the dependence there (`detach`) and looks whether the codes still depend on the image.
    """
    network = copy_for_evaluation(featurizer)
    x = torch.zeros(1, *image, requires_grad=True)

    @cache
    def is_bottleneck(name: str) -> bool:
        with network.get_submodule(name).register_forward_hook(lambda _module, _inputs, h: h.detach()):
            return not _run(network, x).requires_grad

    return lambda call: is_bottleneck(call.name)


def network_name(featurizer: nn.Module) -> str:
    """Return the class of a backbone, for error messages."""
    return type(getattr(featurizer, "net", featurizer)).__name__


def image_shape(featurizer: nn.Module) -> tuple[int, int, int] | None:
    """Return (c, h, w) of a network's input images; None if its inputs are arrays of features."""
    shape = getattr(featurizer, "input_shape", None)
    if shape is None:  # not a `Featurizer`
        convolutions = [module for module in featurizer.modules() if isinstance(module, nn.Conv2d)]
        return (convolutions[0].in_channels, SIDE, SIDE) if convolutions else None
    return tuple(shape) if len(shape) == 3 else None


def copy_for_evaluation(network: nn.Module) -> nn.Module:
    """Return a copy in evaluation mode that shares the values of the weights, without gradients, and nothing else."""
    shared = {id(parameter): nn.Parameter(parameter.detach(), False) for parameter in network.parameters()}
    return copy.deepcopy(network, shared).eval()


@torch.enable_grad()
def _run(network: nn.Module, x: Tensor) -> Tensor:
    """Encode images without changing the state of the random number generator."""
    with torch.random.fork_rng(devices=[]):
        # A clone, because a network may modify its input in place, which autograd forbids for a leaf.
        z: Tensor = network(x.clone().to(next(network.parameters(), x)))
    return z


def _trace(featurizer: nn.Module, image: tuple[int, int, int]) -> Trace:
    network, recorder = copy_for_evaluation(featurizer), _Recorder()
    for name, module in network.named_modules():
        module.register_forward_pre_hook(recorder.enter(name))
        module.register_forward_hook(recorder.leave)
    with recorder:
        _run(network, torch.zeros(BATCH, *image))
    return Trace(recorder.calls, image)


class _Recorder(TorchFunctionMode):
    """Records calls, additions and concatenations while a network runs."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._running: list[Call] = []

    def enter(self, name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _inputs: Any) -> None:
            self._running.append(Call(name, self._running[-1] if self._running else None))

        return hook

    def leave(self, _module: nn.Module, _inputs: Any, output: Any) -> None:
        call = self._running.pop()
        call.shape = output.shape if isinstance(output, Tensor) else None
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
