"""Small networks and batches on which every algorithm can be stepped in milliseconds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fgmix import algorithms
from fgmix.algorithms import Algorithm, Batches
from fgmix.networks import build_classifier, build_featurizer

SHAPE = (3, 16, 16)
CLASSES = 4


def toy_algorithm(name: str, *, n_domains: int = 3, shape: tuple[int, ...] = SHAPE, **settings: Any) -> Algorithm:
    """A registered algorithm on the small CNN (or an MLP for arrays), always from the same initial weights."""
    torch.manual_seed(7)
    backbone = "small_cnn" if len(shape) == 3 else "mlp"
    featurizer = build_featurizer(backbone, shape)
    classifier = build_classifier("linear", featurizer.out_features, CLASSES)
    settings = {"lr": 1e-3, "steps": 10, **settings}
    return algorithms.create(name, featurizer=featurizer, classifier=classifier, n_domains=n_domains, **settings)


def linear_algorithm(name: str, *, d: int = 5, classes: int = 3, n_domains: int = 3, **settings: Any) -> Algorithm:
    """A registered algorithm on codes that are the inputs: only a linear classifier learns, gradients by hand."""
    torch.manual_seed(7)
    settings = {"lr": 1e-2, "steps": 10, **settings}
    return algorithms.create(
        name, featurizer=nn.Identity(), classifier=nn.Linear(d, classes), n_domains=n_domains, **settings
    )


def toy_batches(
    n_domains: int = 3, b: int = 8, shape: tuple[int, ...] = SHAPE, classes: int = CLASSES, seed: int = 0
) -> Batches:
    """Random instances whose domains differ in mean and scale; every class in every domain where b allows it."""
    g = torch.Generator().manual_seed(seed)

    def domain(e: int) -> tuple[Tensor, Tensor]:
        y = torch.arange(b) % classes
        x = torch.randn(b, *shape, generator=g) * (1 + 0.2 * e) + 0.3 * e + 0.1 * y.view(-1, *[1] * len(shape))
        return x, y

    return [domain(e) for e in range(n_domains)]
