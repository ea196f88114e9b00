"""Accuracy and loss of one or several models on parts of domains, in one pass over the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm
from fgmix.data import Domain
from fgmix.data._dataset import Indices
from fgmix.data.loading import HostBatch, deliver
from fgmix.seeding import torch_generator

BATCH = 256  # samples per forward pass
Predict = Callable[[Tensor], Tensor]
M = TypeVar("M", bound=str)  # names of models


class Score(NamedTuple):
    """Share of correct predictions, and mean cross-entropy."""

    accuracy: float
    loss: float


@dataclass(frozen=True)
class Part:
    """Samples of a domain that are scored together.

    Args:
        domain: where they are.
        indices: which ones.
        draws: key of the augmentation's draws, as DomainBed augments source domains; None for clean samples.
    """

    domain: Domain
    indices: Indices
    draws: tuple[object, ...] | None = None

    def prepare(self, start: int) -> HostBatch:
        """The host's share of the work on the batch that begins at `start`."""
        generator = None if self.draws is None else torch_generator("evaluate", *self.draws, start)
        return HostBatch.of(self.domain, self.indices[start : start + BATCH], generator)


def score(algorithm: Algorithm, domain: Domain, indices: Indices) -> Score:
    """Score `algorithm.predict` on samples of a domain; the algorithm is in evaluation mode (see `evaluating`)."""
    device = next(algorithm.parameters()).device
    return score_parts({"raw": algorithm.predict}, [Part(domain, indices)], device)["raw"][0]


def score_parts(models: Mapping[M, Predict], parts: Sequence[Part], device: torch.device) -> dict[M, list[Score]]:
    """Scores of every model on every part. Each batch is prepared once for all models, ahead of its turn.

    Sums stay on the device until the end: fetching them batch by batch would make it wait.

    Args:
        models: logits by name.
        parts: what to score them on.
        device: where they are.
    """
    batches = [(p, start) for p, part in enumerate(parts) for start in range(0, len(part.indices), BATCH)]
    dtype = torch.float32 if device.type == "mps" else torch.float64  # mps has no doubles
    sums = torch.zeros(len(models), len(parts), 2, dtype=dtype, device=device)
    ready = deliver(lambda batch: [parts[batch[0]].prepare(batch[1])], batches, device=device)
    for (p, _), [(x, y)] in zip(batches, ready):
        for total, predict in zip(sums, models.values()):
            logits = predict(x).float()
            total[p, 0] += (logits.argmax(1) == y).sum()
            total[p, 1] += cross_entropy(logits, y, reduction="sum")
    counts = [len(part.indices) for part in parts]
    return {
        name: [Score(correct / n, loss / n) for (correct, loss), n in zip(found, counts)]
        for name, found in zip(models, sums.tolist())
    }


def with_tensors(algorithm: Algorithm, tensors: dict[str, Tensor]) -> Predict:
    """The algorithm's prediction with other weights, which are not copied into it."""
    return partial(_predict_with, algorithm, tensors)


def _predict_with(algorithm: Algorithm, tensors: dict[str, Tensor], x: Tensor) -> Tensor:
    logits: Tensor = functional_call(algorithm, tensors, (x,))
    return logits


@contextmanager
def evaluating(algorithm: Algorithm) -> Iterator[None]:
    """Evaluation mode and no gradients within the block, training mode after it."""
    algorithm.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        algorithm.train()
