"""The optimisers of a method as its settings say: parameter groups, update rule, schedule of the rate, clipping."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Adam, AdamW, Optimizer

from fgmix.algorithms._config import BaseConfig
from fgmix.networks.parts import find_layers

MOMENTUM = 0.9  # of SGD


class _Dense(Optimizer):
    """A fused step on gradients of any memory layout, clipped first where parameter groups have a `clip_norm`.

    Torch's fused step on CPU reads a gradient as flat memory: one whose layout differs from its weight's would silently
    update the wrong entries. Such gradients are converted first.
    """

    def __init__(self, parameters: Iterable[Any], **settings: Any) -> None:
        super().__init__(parameters, fused=True, **settings)  # type: ignore[call-arg]  # of the class beside this one

    def step(self, closure: Any = None) -> Any:
        for p in _parameters_of(self.param_groups):
            if p.grad is not None and p.grad.stride() != p.stride():
                p.grad = torch.empty_like(p).copy_(p.grad)
        bounded = [group for group in self.param_groups if "clip_norm" in group]
        for (largest, _), groups in groupby(bounded, key=itemgetter("clip_norm", "network")):
            clip_grad_norm_(_parameters_of(groups), largest)
        return super().step(closure)


class DenseAdam(_Dense, Adam):
    """Adam, with the results of `torch.optim.Adam`."""


class DenseAdamW(_Dense, AdamW):
    """Adam with decoupled weight decay, with the results of `torch.optim.AdamW`."""


class DenseSGD(_Dense, SGD):
    """SGD, with the results of `torch.optim.SGD`."""


Rated = tuple[nn.Parameter, float, float]  # a parameter, its learning rate and its weight decay


def build_optimizer(rated: Iterable[Rated], config: BaseConfig, betas: tuple[float, float] | None = None) -> Optimizer:
    """Build the optimiser that the settings name. `betas` are those of a method that has its own; SGD has none."""
    groups = group_parameters(rated, config)
    usual: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
    if config.optimizer == "sgd":
        return DenseSGD(groups, momentum=MOMENTUM, **usual)
    kind = DenseAdam if config.optimizer == "adam" else DenseAdamW
    return kind(groups, **usual, **({} if betas is None else {"betas": betas}))


def group_parameters(rated: Iterable[Rated], config: BaseConfig, network: int = 0) -> list[dict[str, Any]]:
    """Form a group of the parameters that share learning rate and weight decay, in order of their first.

    Groups of one `network`, a number, are clipped by the norm of all their gradients together.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for parameter, lr, decay in rated:
        groups.setdefault((lr, decay), []).append(parameter)
    clip = {} if config.clip_norm is None else {"clip_norm": config.clip_norm, "network": network}
    return [{"params": each, "lr": lr, "weight_decay": decay, **clip} for (lr, decay), each in groups.items()]


def rate_network(network: nn.Module, config: BaseConfig, lr: float) -> Iterator[Rated]:
    """Yield the parameters of a featurizer with lr · layer_decay^l, l layers below the classifier."""
    layers = find_layers(network) if config.layer_decay < 1 else None
    spared = find_undecayed(network) if config.decay_on == "matrices" else set()
    for name, p in network.named_parameters():
        factor = 1.0 if layers is None else config.layer_decay ** layers[name]
        yield p, lr * factor, 0.0 if name in spared else config.weight_decay


def rate_others(parameters: Iterable[nn.Parameter], config: BaseConfig, lr: float, decay: float) -> Iterator[Rated]:
    """Yield parameters with one learning rate: those of a classifier, a discriminator, a policy, …"""
    for p in parameters:
        yield p, lr, 0.0 if config.decay_on == "matrices" and p.ndim <= 1 else decay


def find_undecayed(network: nn.Module) -> set[str]:
    """Find the parameters that are no matrices, and those that a timm network names, such as position codes."""
    names = {name for name, p in network.named_parameters() if p.ndim <= 1 or name.endswith(".bias")}
    for prefix, module in network.named_modules():
        if callable(own := getattr(module, "no_weight_decay", None)):
            names |= {f"{prefix}.{name}" if prefix else name for name in own()}
    return names


def compute_factor(config: BaseConfig, step: int) -> float:
    """Compute what the learning rate is multiplied by in a step, counted from 0: a function of the step alone.

    It rises linearly to 1 in the first `lr_warmup` steps W. Then it is 1 or, with t = step − W and n = `steps` − W,
    falls towards 0: by ½ (1 + cos(π t/n)), or by 1 − t/n.

    >>> config = BaseConfig(schedule="cosine", lr_warmup=2, steps=6)
    >>> [round(compute_factor(config, step), 3) for step in range(6)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    if step < config.lr_warmup:
        return (step + 1) / config.lr_warmup
    share = min(1.0, (step - config.lr_warmup) / (config.steps - config.lr_warmup))
    if config.schedule == "constant":
        return 1.0
    return (1 + math.cos(math.pi * share)) / 2 if config.schedule == "cosine" else 1 - share


def set_rates(optimizers: Iterable[Optimizer], factor: float) -> None:
    """Set the learning rate of every group to its initial one, which the group stores as in torch, times a factor."""
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["lr"] = group.setdefault("initial_lr", group["lr"]) * factor


def _parameters_of(groups: Iterable[dict[str, Any]]) -> list[nn.Parameter]:
    return [parameter for group in groups for parameter in group["params"]]
