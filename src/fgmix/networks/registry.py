"""Backbones of a user's own: registered by name, or named as `package.module:function`."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from fgmix.errors import UserError, bad_value
from fgmix.records.code import describe_plug_in, import_function, load_group

OWN_BACKBONES = ("domainbed_mlp", "identity", "mlp", "mnist_cnn", "signal_cnn", "small_cnn")
OPEN_CLIP = "open_clip:"  # prefix of the names of open_clip's models (networks/clip.py)
GROUP = "fgmix.backbones"  # entry-point group of plug-ins: name = "package.module:make"

Make = Callable[..., nn.Module]  # of input_shape and, if it has weights of its own, of pretrained
M = TypeVar("M", bound=Make)


@dataclass(frozen=True)
class Backbone:
    """A registered backbone: how it is built, and the images that it expects."""

    make: Make
    mean: tuple[float, ...] = ()  # of each channel of images in [0, 1]; empty for ImageNet's, and none for arrays
    std: tuple[float, ...] = ()
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    image_size: int | None = None  # side of images from files; None for the usual one

    @property
    def has_weights(self) -> bool:
        """Whether it can be built with pre-trained weights."""
        return "pretrained" in inspect.signature(self.make).parameters


_REGISTRY: dict[str, Backbone] = {}


def register_backbone(name: str, **preprocessing: Any) -> Callable[[M], M]:
    """Register a function (or class) input_shape → network with codes (n, d) as a backbone, as a decorator.

    Args:
        name: of the backbone, as `--backbone` accepts it.
        preprocessing: `mean` and `std` of each channel of images in [0, 1], `interpolation`, `image_size`.

    A function with an argument `pretrained` can load weights of its own; `--weights FILE` works for every one. The
    width d of the codes is the network's attribute `out_features`, or measured.

    >>> @register_backbone("flat", mean=(0.5,), std=(0.5,))
    ... def make(input_shape):
    ...     return nn.Flatten()
    >>> find_backbone("flat").mean
    (0.5,)
    >>> del _REGISTRY["flat"]
    """
    if not isinstance(name, str) or not name.strip() or {*name} & {*":./ "}:
        raise bad_value("name", "a name without blanks, dots and colons", name)
    mean, std = (tuple(map(float, preprocessing.get(each) or ())) for each in ("mean", "std"))
    if len(mean) != len(std) or any(value <= 0 for value in std):
        raise bad_value("std", "a positive number for each one of mean", std)

    def add(make: M) -> M:
        if not callable(make):
            raise bad_value("make", "a function of input_shape", make)
        if name in OWN_BACKBONES or (name in _REGISTRY and _REGISTRY[name].make.__module__ != make.__module__):
            raise UserError(f"Backbone {name!r} is registered already. Choose another name.")
        _REGISTRY[name] = Backbone(make, **{**preprocessing, "mean": mean, "std": std})
        return make

    return add


def registered_backbones() -> list[str]:
    """List the registered names, plug-ins included, sorted."""
    load_group(GROUP, _add)
    return sorted(_REGISTRY)


def find_backbone(name: str) -> Backbone | None:
    """Find a backbone of a user's own; None for our own, timm's and open_clip's."""
    if name in OWN_BACKBONES:
        return None
    if name not in _REGISTRY and name in (failures := load_group(GROUP, _add)):
        raise UserError(failures[name])
    if ":" not in name or name.startswith(OPEN_CLIP):
        return _REGISTRY.get(name)
    make = import_function(name, "makes a backbone")
    return next((each for each in _REGISTRY.values() if each.make is make), Backbone(make))


def digest_backbone(name: str) -> str:
    """Compute the digest of the source of a user's own backbone; empty for others, and without source."""
    backbone = find_backbone(name)
    return describe_plug_in(GROUP, name, backbone.make).partition(" ")[0] if backbone else ""


def check_backbone(name: str, digest: str) -> None:
    """Raise an error if a backbone of a plug-in is missing here; warn if its source is another."""
    if find_backbone(name) is None:
        raise UserError(
            f"Expected the backbone {name!r} of a plug-in. It is not registered here. Pass its file with --plugin "
            "FILE, install its package, or import it first."
        )
    if digest_backbone(name) != digest:
        warnings.warn(f"The source of the backbone {name!r} has changed since the run.", stacklevel=3)


def build_registered(name: str, backbone: Backbone, shape: tuple[int, ...], pretrained: bool) -> tuple[nn.Module, int]:
    """Build a user's own network, and measure the width of its codes."""
    try:
        net = backbone.make(shape, **({"pretrained": True} if pretrained else {}))
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            training, codes = net.training, net.eval()(torch.zeros(2, *shape))
        net.train(training)
    except Exception as error:  # a user's own function may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"Expected a backbone for samples of shape {shape}. {name} fails ({reason}).") from error
    if not isinstance(codes, Tensor) or codes.ndim != 2 or len(codes) != 2:
        found = f"a tensor of shape {tuple(codes.shape)}" if isinstance(codes, Tensor) else type(codes).__name__
        raise UserError(
            f"Expected codes (n, d) from the backbone {name} for 2 samples. Found {found}. Pool and flatten."
        )
    return net, codes.shape[1]


def _add(name: str, make: Make) -> None:
    """Register the backbone of a plug-in, which may have registered itself."""
    if name not in _REGISTRY or _REGISTRY[name].make is not make:
        register_backbone(name)(make)
