"""Evaluate a run: accuracy and loss of one or several models on parts of domains, in one pass over the data.

Every evaluation scores the holdout parts of the source domains, which select steps and hyper-parameters, and both parts
of the test domains; on request also the training parts of the sources.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm, Predict
from fgmix.data import Domain
from fgmix.data.dataset import Indices
from fgmix.data.loading import HostBatch, deliver
from fgmix.records.evaluations import Model, Score
from fgmix.records.metrics import Floats, rates
from fgmix.records.protocols import PROTOCOLS
from fgmix.seeding import numpy_generator, torch_generator
from fgmix.training.devices import autocast
from fgmix.training.prepare import PreparedRun

BATCH = 256  # samples per forward pass
MOST_LOGITS = 10_000_000  # values kept of a subset for its AUROC, 40 MB
Start = Callable[[], Predict]  # makes what predicts the batches of one subset
M = TypeVar("M", bound=str)  # names of models


class Outputs(NamedTuple):
    """Predictions of a model for the samples of a subset: the arguments of `records.metrics.metrics`."""

    y: Indices  # labels (n,)
    guesses: Indices  # predicted classes (n,)
    probabilities: Floats  # (m, C) of the first m samples, as many as `MOST_LOGITS` allows


DomainScores = dict[str, dict[str, Score]]  # by domain, then by part: "train" or "holdout"


@dataclass(frozen=True)
class Subset:
    """Samples of a domain that are scored together."""

    domain: Domain
    indices: Indices
    draws: tuple[object, ...] | None = None  # seed of the augmentation that DomainBed applies to source domains
    outputs: bool = False  # whether to keep the models' predictions for each sample
    batch_size: int = field(default_factory=lambda: BATCH)

    def prepare(self, start: int) -> HostBatch:
        """Prepare the batch that begins at `start` on the host."""
        generator = None if self.draws is None else torch_generator("evaluate", *self.draws, start)
        return HostBatch.of(self.domain, self.indices[start : start + self.batch_size], generator)


# A run


def score_run(
    run: PreparedRun, algorithm: Algorithm, models: Mapping[Model, Start], step: int
) -> dict[Model, DomainScores]:
    """Score each model on all parts of domains that the run evaluates, in one pass over the data.

    The algorithm of the models is in evaluation mode meanwhile. The number of steps that were trained seeds the draws
    of protocols that augment validation images. A method that adapts at test time gets the samples of a part in an
    order of their own, which does not depend on the run: folders list them class by class.
    """
    augmented_validation = PROTOCOLS[run.spec.protocol].augmented_validation
    subsets: dict[tuple[str, str], Subset] = {}
    for domain in run.dataset.domains:
        name, is_source = domain.name, domain.name in run.sources
        for part in ("holdout",) if is_source and not run.spec.evaluate_train else ("train", "holdout"):
            draws = (run.spec.seed, name, part, step) if is_source and augmented_validation else None
            reported = not is_source and part == "train"  # which no selection rule uses
            indices: Indices = getattr(run.splits[name], part)
            if algorithm.adapts_at_test:
                indices = numpy_generator("test order", name, part).permutation(indices)
            size = getattr(algorithm.config, "test_batch_size", BATCH)
            subsets[name, part] = Subset(domain, indices, draws, reported, size)
    device = next(algorithm.parameters()).device
    with evaluation_mode(algorithm), autocast(run.spec.precision, device):
        scores = score_subsets(models, list(subsets.values()), device, len(run.dataset.classes))
    by_domain: dict[Model, DomainScores] = {model: defaultdict(dict) for model in models}
    for model in models:
        for (name, part), score in zip(subsets, scores[model]):
            by_domain[model][name][part] = score
    return by_domain


# Any models and subsets


def score_subsets(
    models: Mapping[M, Start], subsets: Sequence[Subset], device: torch.device, classes: int
) -> dict[M, list[Score]]:
    """Score every model on every subset, for which it makes a function from inputs to logits.

    Each batch is prepared in advance, once for all models. Sums stay on the device until the end: fetching them batch
    by batch would make it wait.
    """
    batches = [(p, start) for p, each in enumerate(subsets) for start in range(0, len(each.indices), each.batch_size)]
    dtype = torch.float32 if device.type == "mps" else torch.float64  # mps has no doubles
    losses = torch.zeros(len(models), len(subsets), dtype=dtype, device=device)
    hits, predicted = torch.zeros(2, len(models), len(subsets), classes, dtype=dtype, device=device)
    kept: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = defaultdict(list)
    ready = deliver(lambda batch: [subsets[batch[0]].prepare(batch[1])], batches, device=device)
    functions: list[Predict] = []
    for (p, start), [(x, y)] in zip(batches, ready):
        if start == 0:
            functions = [begin() for begin in models.values()]
        for m, predict in enumerate(functions):
            logits = predict(x).float()
            guesses = logits.argmax(1)
            losses[m, p] += cross_entropy(logits, y, reduction="sum")
            hits[m, p].index_add_(0, y, (guesses == y).to(dtype))
            predicted[m, p].index_add_(0, guesses, torch.ones_like(guesses, dtype=dtype))
            if subsets[p].outputs:
                kept[m, p].append((guesses, logits[: max(0, MOST_LOGITS // classes - start)]))
    loss, predictions, correct = losses.cpu().numpy(), predicted.cpu().numpy(), hits.cpu().numpy()
    outputs = {(m, p): _fetch_outputs(subsets[p], each) for (m, p), each in kept.items()}
    scores: dict[M, list[Score]] = {name: [] for name in models}
    for p, subset in enumerate(subsets):
        labelled = np.bincount(subset.domain.y[subset.indices], minlength=classes)
        for m, name in enumerate(models):
            counted = rates(labelled, predictions[m, p], correct[m, p])
            mean_loss = float(loss[m, p] / counted.samples)
            scores[name].append(Score(counted.accuracy, mean_loss, counted, outputs.get((m, p))))
    return scores


def _fetch_outputs(subset: Subset, batches: Sequence[tuple[Tensor, Tensor]]) -> Outputs:
    """Fetch guesses and logits of all batches of a subset from the device."""
    guesses, logits = (torch.cat(tensors).cpu().numpy() for tensors in zip(*batches))
    p = np.exp(logits - logits.max(axis=1, keepdims=True)).astype(np.float64)
    return Outputs(subset.domain.y[subset.indices], guesses, p / p.sum(axis=1, keepdims=True))


def bind_weights(algorithm: Algorithm, tensors: dict[str, Tensor]) -> Predict:
    """Return `algorithm.predict` with other weights, which are not copied into the algorithm."""
    return partial(functional_call, algorithm, tensors)


@contextmanager
def evaluation_mode(algorithm: Algorithm) -> Iterator[None]:
    """Set evaluation mode and compute no gradients within the block; set training mode after it."""
    algorithm.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        algorithm.train()
