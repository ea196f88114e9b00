"""What the twins of the gradient methods share: the same network twice, in double precision."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Algorithm, Batches


def double_batches(n_domains: int = 3, **options: Any) -> Batches:
    return [(x.double(), y) for x, y in toy_batches(n_domains, shape=(6,), **options)]


def double_pair(name: str, n_domains: int = 3, **settings: Any) -> tuple[Algorithm, nn.Sequential]:
    """A method on an MLP, and a plain copy of its network for the twin to train.

    Double precision: Adam's first steps are nearly the gradient's sign, so that rounding alone moves an element whose
    gradient is nearly zero.
    """
    algorithm = toy_algorithm(name, n_domains=n_domains, shape=(6,), **settings).double().train()
    return algorithm, copy.deepcopy(nn.Sequential(algorithm.featurizer, algorithm.classifier))


def plain_adam(network: nn.Module, lr: float = 1e-3, weight_decay: float = 0.0) -> torch.optim.Adam:
    return torch.optim.Adam(network.parameters(), lr=lr, weight_decay=weight_decay)


def assert_same_weights(algorithm: Algorithm, network: nn.Module) -> None:
    for (name, p), q in zip(algorithm.named_parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-8, msg=lambda text, name=name: f"{name}: {text}")
