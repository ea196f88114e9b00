"""Small networks and batches on which every algorithm can be stepped in milliseconds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize as normalise

from fgmix import algorithms
from fgmix.algorithms import Algorithm, Batches, Task
from fgmix.functional.domains import IndexedBatch
from fgmix.networks import build_classifier, build_featurizer
from fgmix.networks.clip import TextTower
from fgmix.networks.parts import recompute_blocks
from fgmix.networks.text import TEXT_HEADS, TextHead
from fgmix.seeding import seed_torch

SHAPE = (3, 16, 16)
CLASSES = 4


def toy_algorithm(
    name: str,
    *,
    n_domains: int = 3,
    shape: tuple[int, ...] = SHAPE,
    recompute: bool = False,
    head: str = "",
    **settings: Any,
) -> Algorithm:
    """Build a registered algorithm on a small network, always from the same initial weights.

    `shape` is (c, h, w) of images, (c, t) of signals or (f,) of features; `head` is the method's own, or else linear,
    unless given; lr is 1e-3 and steps 10 unless given. With `recompute`, the activations of its blocks are computed
    again in the backward pass.

    >>> type(toy_algorithm("coral", gamma=2.0)).__name__
    'CORAL'
    """
    torch.manual_seed(7)
    featurizer = build_featurizer({1: "mlp", 2: "signal_cnn", 3: "small_cnn"}[len(shape)], shape)
    if recompute:
        recompute_blocks(featurizer)
    classifier = build_toy_head(head or algorithms.get(name).head or "linear", featurizer.out_features)
    settings = {"lr": 1e-3, "steps": 10, "task": make_toy_task(n_domains, featurizer.out_features), **settings}
    return algorithms.create(name, featurizer=featurizer, classifier=classifier, n_domains=n_domains, **settings)


def build_toy_head(kind: str, code_size: int, classes: int = CLASSES) -> nn.Module:
    """Build a head of any kind; one of texts has random embeddings."""
    if kind not in TEXT_HEADS:
        return build_classifier(kind, code_size, classes)
    return TextHead(torch.randn(classes, code_size), scale=10.0, frozen=kind == "text-frozen")


def make_toy_task(n_domains: int = 3, code_size: int = 8, classes: int = CLASSES) -> Task:
    """Make a task with a text tower of toy size, which needs no other package."""
    names = tuple(f"class {c}" for c in range(classes))
    domains = tuple(f"domain {e}" for e in range(n_domains))
    return Task(names, domains, build_text=lambda: TextTower(_ToyClip(code_size), _tokenize))


class _ToyClip(nn.Module):
    """What `TextTower` uses of a model of open_clip: t = normalised mean of token vectors, by position."""

    def __init__(self, code_size: int, width: int = 6, length: int = 32) -> None:
        super().__init__()
        self.visual, self.logit_scale = nn.Identity(), nn.Parameter(torch.tensor(2.0))
        self.token_embedding = nn.Embedding(128, width)
        self.positions, self.projection = nn.Parameter(torch.randn(length, 1)), nn.Linear(width, code_size)

    def encode_text(self, tokens: Tensor, normalize: bool) -> Tensor:
        h = self.token_embedding(tokens) * self.positions[: tokens.shape[1]]
        return normalise(self.projection(h.sum(1).tanh()), dim=1) if normalize else h


def _tokenize(texts: list[str], length: int = 32) -> Tensor:
    """Turn every character into a token, after a token of the start."""
    return torch.tensor([[1, *map(ord, text[: length - 1]), *[0] * (length - 1 - len(text))] for text in texts])


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
