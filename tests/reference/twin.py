"""A second copy of an algorithm's weights, moved by an update that the test writes out."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam

from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Algorithm, Batches


class Twin:
    """g and h copied from an algorithm, under a plain Adam of the same learning rate.

    `parts` is the whole copy: tests take a method's further networks and buffers from it. `kept` is theirs to keep
    optimisers and the like in.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self.parts: Any = copy.deepcopy(algorithm)
        self.g, self.h = self.parts.featurizer, self.parts.classifier
        self.lr = algorithm.config.lr
        self.kept: dict[str, Any] = {}
        self.restart()

    def restart(self, **settings: Any) -> None:
        """Adam without a memory."""
        self.optimizer = Adam([*self.g.parameters(), *self.h.parameters()], **{"lr": self.lr, **settings})

    def descend(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def wide(algorithm: Algorithm, batches: Batches) -> tuple[Algorithm, Batches]:
    """Both in float64, where two ways to write one formula agree to more digits than any slip would leave."""
    return algorithm.double().train(), [(x.double(), y) for x, y in batches]


def assert_same_weights(algorithm: Algorithm, twin: Twin) -> None:
    for ours, theirs in ((algorithm.featurizer, twin.g), (algorithm.classifier, twin.h)):
        for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-7)


def assert_same_state(algorithm: Algorithm, twin: Twin) -> None:
    """All parameters and buffers, those of a method's further networks too."""
    theirs = {**dict(twin.parts.named_parameters()), **dict(twin.parts.named_buffers())}
    for name, ours in (*algorithm.named_parameters(), *algorithm.named_buffers()):
        torch.testing.assert_close(ours, theirs[name], rtol=0, atol=1e-7, msg=lambda text, n=name: f"{n}: {text}")


def assert_follows(
    name: str,
    twin_step: Callable[[Twin, Batches, int], None],
    *,
    steps: int = 3,
    shape: tuple[int, ...] = (6,),
    per_domain: int = 8,
    n_domains: int = 3,
    whole: bool = False,
    batch_norm: bool = False,
    **settings: object,
) -> None:
    """Some steps of the algorithm and of `twin_step(twin, batches, step)` from the same seeds end in the same weights.

    Adam moves every weight by about lr = 1e-3 a step, so the 1e-7 allowed is a ten-thousandth of the movement. `whole`
    compares everything that the method holds besides g and h, too. `batch_norm` appends a layer to g that normalises by
    the statistics of the batch, and compares its running statistics.
    """
    algorithm = toy_algorithm(name, shape=shape, n_domains=n_domains, **settings)
    if batch_norm:
        norm = nn.BatchNorm1d(algorithm.code_size, affine=False)
        algorithm.featurizer = nn.Sequential(algorithm.featurizer, norm)
    algorithm, batches = wide(algorithm, toy_batches(n_domains, shape=shape, b=per_domain))
    twin = Twin(algorithm)
    for step in range(steps):
        torch.manual_seed(step)
        algorithm.step(batches)
        torch.manual_seed(step)
        twin_step(twin, batches, step)
        (assert_same_state if whole else assert_same_weights)(algorithm, twin)
