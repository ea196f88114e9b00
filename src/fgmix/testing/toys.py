"""Small networks and batches on which every algorithm can be stepped in milliseconds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fgmix import algorithms
from fgmix.algorithms import Algorithm, Batches
from fgmix.functional.batches import IndexedBatch
from fgmix.networks import build_classifier, build_featurizer
from fgmix.networks.recompute import recompute_blocks
from fgmix.seeding import seed_torch

SHAPE = (3, 16, 16)
CLASSES = 4


def toy_algorithm(
    name: str, *, n_domains: int = 3, shape: tuple[int, ...] = SHAPE, recompute: bool = False, **settings: Any
) -> Algorithm:
    """Build a registered algorithm on a small network, always from the same initial weights.

    `shape` is (c, h, w) of images, (c, t) of signals or (f,) of features; lr is 1e-3 and steps 10 unless given. With
    `recompute`, the activations of its blocks are computed again in the backward pass.

    >>> type(toy_algorithm("coral", gamma=2.0)).__name__
    'CORAL'
    """
    torch.manual_seed(7)
    featurizer = build_featurizer({1: "mlp", 2: "signal_cnn", 3: "small_cnn"}[len(shape)], shape)
    if recompute:
        recompute_blocks(featurizer)
    classifier = build_classifier("linear", featurizer.out_features, CLASSES)
    settings = {"lr": 1e-3, "steps": 10, **settings}
    return algorithms.create(name, featurizer=featurizer, classifier=classifier, n_domains=n_domains, **settings)


def toy_batches(
    n_domains: int = 3, b: int = 8, shape: tuple[int, ...] = SHAPE, classes: int = CLASSES, seed: int = 0
) -> Batches:
    """Draw random samples whose domains differ in mean and scale; every domain has every class if b is large enough.

    >>> [(tuple(x.shape), y.tolist()) for x, y in toy_batches(2, b=4, shape=(6,))]
    [((4, 6), [0, 1, 2, 3]), ((4, 6), [0, 1, 2, 3])]
    """
    g = torch.Generator().manual_seed(seed)

    def domain(e: int) -> tuple[Tensor, Tensor]:
        y = torch.arange(b) % classes
        x = torch.randn(b, *shape, generator=g) * (1 + 0.2 * e) + 0.3 * e + 0.1 * y.view(-1, *[1] * len(shape))
        return x, y

    return [domain(e) for e in range(n_domains)]


def run_steps(algorithm: Algorithm, batches: Batches, first: int, last: int) -> dict[str, Tensor]:
    """Run steps first, …, last − 1, each seeded by its number as in the training loop; returns the last metrics."""
    algorithm.train()
    if algorithm.needs_indices:
        batches = [IndexedBatch(x, y, torch.arange(len(y))) for x, y in batches]
    metrics: dict[str, Tensor] = {}
    for step in range(first, last):
        seed_torch("step", 0, step)
        metrics = algorithm.step(batches)
    return metrics
