"""The toys of `fgmix.testing`, and one whose gradients can be had by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fgmix import algorithms
from fgmix.algorithms import Algorithm
from fgmix.testing.toys import toy_algorithm as toy_algorithm
from fgmix.testing.toys import toy_batches as toy_batches


def linear_algorithm(name: str, *, d: int = 5, classes: int = 3, n_domains: int = 3, **settings: Any) -> Algorithm:
    """A registered algorithm on codes that are the inputs: only a linear classifier learns, gradients by hand."""
    torch.manual_seed(7)
    settings = {"lr": 1e-2, "steps": 10, **settings}
    return algorithms.create(
        name, featurizer=nn.Identity(), classifier=nn.Linear(d, classes), n_domains=n_domains, **settings
    )
