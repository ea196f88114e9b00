"""Features of one scale: mean 0 and variance 1 over what a run trains on, with damped tails.

    z = (x − mean) / scale,    z ↦ sign(z) · (min(|z|, c) + log(1 + max(|z| − c, 0))),    c = 5

A feature that hardly varies in training, such as a corner pixel or a rare word, has a tiny scale, and an ordinary value
of it in a new domain would be hundreds of standard deviations: more than all other features together. Beyond c a value
therefore grows by its logarithm alone. Each feature is judged by its own spread, so units do not matter, and nothing
is cut off, so order is kept. docs/your-data.md compares rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fgmix.data._dataset import ArrayInputs, Domain, DomainDataset, Indices

RESOLVED = 1e-6  # spread of a feature relative to its size, below which single precision sees a constant
FURTHEST = 1e30  # standard deviations at most: beyond, single precision has no number
TAIL = 5.0  # standard deviations from which on values are damped: few values of a normal distribution lie beyond


@dataclass(frozen=True)
class Standardisation:
    """x ↦ (x − mean) / scale, feature by feature, damped beyond `tail`.

    Args:
        mean: of each feature (f,), in single precision as the network's inputs are.
        scale: standard deviation of each feature (f,); 1 for a feature that does not vary.
        tail: number of standard deviations c beyond which a value grows by its logarithm; infinity for none.

    Example:
        >>> Standardisation(np.float32([1, 0]), np.float32([2, 1]))(np.float32([[3, 5]]))
        array([[1., 5.]], dtype=float32)
    """

    mean: npt.NDArray[np.float32]
    scale: npt.NDArray[np.float32]
    tail: float = TAIL

    def __call__(self, x: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        with np.errstate(over="ignore"):
            z: npt.NDArray[np.float32] = (as_units(x) - self.mean) / self.scale
        np.clip(z, -FURTHEST, FURTHEST, out=z)
        beyond = np.abs(z) > self.tail
        if beyond.any():  # rarely: batches of ordinary values cost nothing more
            far = np.abs(z[beyond])
            z[beyond] = np.sign(z[beyond]) * (self.tail + np.log1p(far - np.float32(self.tail)))
        return z


def fit_standardisation(parts: Iterable[tuple[Domain, Indices]], tail: float = TAIL) -> Standardisation:
    """Mean and standard deviation over samples of several domains, all samples weighing the same.

    Args:
        parts: domains of features, and which of their samples.
        tail: standard deviations beyond which values are damped; 0 for none.
    """
    rows = [as_units(_inputs(domain).x[indices]) for domain, indices in parts]
    n = sum(map(len, rows))
    mean = np.sum([x.sum(axis=0, dtype=np.float64) for x in rows], axis=0) / n
    scale = np.sqrt(np.sum([np.square(x - mean).sum(axis=0) for x in rows], axis=0) / n)
    largest = np.max([np.abs(x).max(axis=0) for x in rows], axis=0)
    scale[scale <= RESOLVED * largest] = 1
    return Standardisation(mean.astype(np.float32), scale.astype(np.float32), tail or np.inf)


def standardised(dataset: DomainDataset, standard: Standardisation) -> DomainDataset:
    """The dataset with its features standardised as they are read."""
    domains = (replace(domain, inputs=replace(_inputs(domain), standard=standard)) for domain in dataset.domains)
    return replace(dataset, domains=tuple(domains))


def as_units(x: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Numbers as a network sees them: bytes scaled to [0, 1]."""
    return x.astype(np.float32) / np.float32(255) if x.dtype == np.uint8 else x.astype(np.float32, copy=False)


def _inputs(domain: Domain) -> ArrayInputs:
    if not isinstance(domain.inputs, ArrayInputs):
        raise AssertionError("features are arrays")
    return domain.inputs
