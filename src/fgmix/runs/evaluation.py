"""Accuracy and loss of a model on part of a domain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm
from fgmix.data import Domain
from fgmix.data._dataset import Indices


class Score(NamedTuple):
    """Share of right predictions, and mean cross-entropy."""

    accuracy: float
    loss: float


def score(
    algorithm: Algorithm,
    domain: Domain,
    indices: Indices,
    *,
    generator: torch.Generator | None = None,
    batch_size: int = 256,
) -> Score:
    """Score `algorithm.predict` on the named instances of a domain.

    Args:
        algorithm: in evaluation mode (see `evaluating`).
        domain: where the instances are.
        indices: which ones.
        generator: evaluate on augmented inputs drawn from it, as DomainBed does for source domains; None: clean.
        batch_size: instances per forward pass.
    """
    device = next(algorithm.parameters()).device
    right, loss = 0, 0.0
    for start in range(0, len(indices), batch_size):
        part = indices[start : start + batch_size]
        inputs = domain.inputs.clean(part) if generator is None else domain.inputs.augmented(part, generator)
        y = torch.from_numpy(domain.y[part]).to(device)
        logits = algorithm.predict(inputs.to(device)).float()
        right += int((logits.argmax(1) == y).sum())
        loss += float(cross_entropy(logits, y, reduction="sum"))
    return Score(right / len(indices), loss / len(indices))


@contextmanager
def evaluating(algorithm: Algorithm) -> Iterator[None]:
    """Evaluation mode and no gradients within the block, training mode after it."""
    algorithm.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        algorithm.train()
