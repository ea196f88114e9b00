"""The toys of `fgmix.testing`, and one whose gradients can be had by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fgmix import algorithms
from fgmix.algorithms import Algorithm, Batches
from fgmix.testing.toys import toy_algorithm as toy_algorithm
from fgmix.testing.toys import toy_batches as toy_batches


def linear_algorithm(name: str, *, d: int = 5, classes: int = 3, n_domains: int = 3, **settings: Any) -> Algorithm:
    """A registered algorithm on codes that are the inputs: only a linear classifier learns, gradients by hand."""
    torch.manual_seed(7)
    settings = {"lr": 1e-2, "steps": 10, **settings}
    return algorithms.create(
        name, featurizer=nn.Identity(), classifier=nn.Linear(d, classes), n_domains=n_domains, **settings
    )


def batches_of(b: int = 4, k: int = 3) -> Batches:
    """Batches in double precision."""
    return [(x.double(), y) for x, y in toy_batches(k, b=b)]


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """Copy the state of a module."""
    return {n: t.clone() for n, t in module.state_dict().items() if isinstance(t, Tensor)}


def has_same_state(before: dict[str, Tensor], module: nn.Module) -> bool:
    """Whether a module has the state that was copied before."""
    after = state_of(module)
    return all(torch.equal(before[name], after[name]) for name in before)
