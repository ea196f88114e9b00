"""Accuracy and loss of one or several models on parts of domains, in one pass over the data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm
from fgmix.data import Domain
from fgmix.data.dataset import Indices
from fgmix.data.loading import HostBatch, deliver
from fgmix.records.metrics import Counts, Floats, Metrics, metrics
from fgmix.seeding import torch_generator

BATCH = 256  # samples per forward pass
MOST_LOGITS = 10_000_000  # values kept of a part for its AUROC, 40 MB
Predict = Callable[[Tensor], Tensor]
M = TypeVar("M", bound=str)  # names of models


class Outputs(NamedTuple):
    """Predictions of a model for the samples of a part, on its device.

    Args:
        guesses: predicted classes (n,).
        logits: (m, C) of the first m samples, as many as `MOST_LOGITS` allows.
    """

    guesses: Tensor
    logits: Tensor


class Score(NamedTuple):
    """Accuracy, mean cross-entropy, counts by class, and the outputs if requested."""

    accuracy: float
    loss: float
    counts: Counts
    outputs: Outputs | None = None


@dataclass(frozen=True)
class Part:
    """Samples of a domain that are scored together.

    Args:
        domain: their domain.
        indices: which of its samples.
        draws: key that seeds the augmentation, which DomainBed applies to source domains; None for no augmentation.
        outputs: whether to keep the models' predictions for each sample.
    """

    domain: Domain
    indices: Indices
    draws: tuple[object, ...] | None = None
    outputs: bool = False

    @property
    def y(self) -> Indices:
        """Labels (n,)."""
        return self.domain.y[self.indices]

    def metrics(self, outputs: Outputs) -> Metrics:
        """The metrics of a model's outputs."""
        guesses, logits = (tensor.cpu().numpy() for tensor in outputs)
        p = np.exp(logits - logits.max(axis=1, keepdims=True)).astype(np.float64)
        return metrics(self.y, guesses, p / p.sum(axis=1, keepdims=True))

    def prepare(self, start: int) -> HostBatch:
        """The batch that begins at `start`, as prepared on the host."""
        generator = None if self.draws is None else torch_generator("evaluate", *self.draws, start)
        return HostBatch.of(self.domain, self.indices[start : start + BATCH], generator)


def score(algorithm: Algorithm, domain: Domain, indices: Indices) -> Score:
    """Score `algorithm.predict` on samples of a domain; call it in evaluation mode (see `evaluating`)."""
    device = next(algorithm.parameters()).device
    return score_parts({"raw": algorithm.predict}, [Part(domain, indices)], device, algorithm.n_classes)["raw"][0]


def score_parts(
    models: Mapping[M, Predict], parts: Sequence[Part], device: torch.device, classes: int
) -> dict[M, list[Score]]:
    """Scores of every model on every part. Each batch is prepared in advance, once for all models.

    Sums stay on the device until the end: fetching them batch by batch would make it wait.

    Args:
        models: by name, functions from inputs to logits.
        parts: what to score them on.
        device: of the models.
        classes: number of classes.
    """
    batches = [(p, start) for p, part in enumerate(parts) for start in range(0, len(part.indices), BATCH)]
    dtype = torch.float32 if device.type == "mps" else torch.float64  # mps has no doubles
    losses = torch.zeros(len(models), len(parts), dtype=dtype, device=device)
    hits, predicted = torch.zeros(2, len(models), len(parts), classes, dtype=dtype, device=device)
    kept: dict[tuple[int, int], list[Outputs]] = defaultdict(list)
    ready = deliver(lambda batch: [parts[batch[0]].prepare(batch[1])], batches, device=device)
    for (p, start), [(x, y)] in zip(batches, ready):
        for m, predict in enumerate(models.values()):
            logits = predict(x).float()
            guesses = logits.argmax(1)
            losses[m, p] += cross_entropy(logits, y, reduction="sum")
            hits[m, p].index_add_(0, y, (guesses == y).to(dtype))
            predicted[m, p].index_add_(0, guesses, torch.ones_like(guesses, dtype=dtype))
            if parts[p].outputs:
                kept[m, p].append(Outputs(guesses, logits[: max(0, MOST_LOGITS // classes - start)]))
    loss, said, hit = losses.cpu().numpy(), predicted.cpu().numpy(), hits.cpu().numpy()
    return {
        name: [_score(part, loss[m, p], said[m, p], hit[m, p], kept.get((m, p), [])) for p, part in enumerate(parts)]
        for m, name in enumerate(models)
    }


def _score(part: Part, loss: np.float64, predicted: Floats, hits: Floats, kept: list[Outputs]) -> Score:
    n = len(part.indices)
    counts = Counts(np.bincount(part.y, minlength=len(hits)), predicted, hits)
    outputs = Outputs(*map(torch.cat, zip(*kept))) if kept else None
    return Score(float(hits.sum() / n), float(loss / n), counts, outputs)


def with_tensors(algorithm: Algorithm, tensors: dict[str, Tensor]) -> Predict:
    """`algorithm.predict` with other weights, which are not copied into the algorithm."""
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
