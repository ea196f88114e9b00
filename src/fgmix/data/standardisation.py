"""Standardise samples to mean 0 and variance 1 over the training samples of a run, with damped tails of features.

    z = (x − mean) / scale,    z ↦ sign(z) · (min(|z|, c) + log(1 + max(|z| − c, 0))),    c = 5

A feature that hardly varies in training, such as a corner pixel or a rare word, has a tiny scale, and an ordinary value
in a new domain would be hundreds of standard deviations, more than all other features together. Beyond c values
therefore grow only logarithmically. Each feature is scaled by its own spread, so units do not matter, and the map is
increasing, so order is preserved. docs/fit/standardise.md compares alternatives.

Signals and images are standardised channel by channel, without damping: a channel varies, and its peaks have a shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fgmix.data.dataset import SCALED, ArrayInputs, Domain, DomainDataset, Indices, TableInputs

# spread of a feature relative to its largest value, below which it counts as constant, by the precision of the values
RESOLVED = {"float32": 1e-6, "float64": 1e-14}
FURTHEST = 1e30  # largest number of standard deviations: avoids overflow in single precision
PRIOR = 8  # samples that the source domains count for when statistics are fitted to a batch of a new domain
TAIL = 5.0  # standard deviations beyond which values are damped: few values of a normal distribution lie there


@dataclass(frozen=True)
class Standardisation:
    """x ↦ (x − mean) / scale, by feature or channel, damped beyond `tail`.

    >>> Standardisation(np.float32([1, 0]), np.float32([2, 1]))(np.float32([[3, 5]]))
    array([[1., 5.]], dtype=float32)
    """

    # of each feature (f,), or of each channel of signals (c, 1) and images (c, 1, 1), in single precision like the
    # network's inputs, or in double precision like the samples
    mean: npt.NDArray[Any]
    scale: npt.NDArray[Any]  # standard deviation, of the same shape; 1 for a feature or channel that does not vary
    tail: float = TAIL  # c; infinity for no damping
    imputes: bool = False  # of a table: missing values (NaN) are replaced by the mean

    def __call__(self, x: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Standardise x (n, …). `deploy.network.Standardise` is the same map as a layer: change both together."""
        if self.imputes:
            x = np.where(np.isnan(x), self.mean, x)
        with np.errstate(over="ignore"):
            z: npt.NDArray[Any] = (as_units(x).astype(self.mean.dtype, copy=False) - self.mean) / self.scale
        np.clip(z, -FURTHEST, FURTHEST, out=z)
        beyond = np.abs(z) > self.tail
        if beyond.any():  # rare: ordinary batches cost nothing more
            far = np.abs(z[beyond])
            z[beyond] = np.sign(z[beyond]) * (self.tail + np.log1p(far - np.float32(self.tail)))
        single: npt.NDArray[np.float32] = z.astype(np.float32, copy=False)
        return single


def fit_standardisation(parts: Iterable[tuple[Domain, Indices]], tail: float = TAIL) -> Standardisation:
    """Compute mean and standard deviation over samples of several domains, with equal weights of all values.

    `tail` is the number of standard deviations beyond which values are damped; 0 for no damping.
    """
    parts = list(parts)
    rows = [as_units(cast("ArrayInputs", domain.inputs).x[indices]) for domain, indices in parts]
    if isinstance(parts[0][0].inputs, TableInputs):
        return _fit_table(np.concatenate(rows), tail)
    axes = pooled_axes(rows[0])
    n = sum(x.size for x in rows) // rows[0].shape[1]
    mean = np.sum([x.sum(axis=axes, keepdims=True, dtype=np.float64)[0] for x in rows], axis=0) / n
    scale = np.sqrt(np.sum([np.square(x - mean).sum(axis=axes, keepdims=True)[0] for x in rows], axis=0) / n)
    largest = np.max([np.abs(x).max(axis=axes, keepdims=True)[0] for x in rows], axis=0)
    dtype = np.result_type(*rows)
    scale[scale <= RESOLVED[dtype.name] * largest] = 1
    return Standardisation(mean.astype(dtype), scale.astype(dtype), tail or np.inf)


def _fit_table(x: npt.NDArray[Any], tail: float) -> Standardisation:
    """Fit to the values of a table that are present.

    A feature that does not vary, such as a category that does not occur, gets an infinite scale: it was not learned,
    and must not act in a new domain.
    """
    present = ~np.isnan(x)
    n = np.maximum(present.sum(axis=0), 1)
    mean = np.where(present, x, 0).sum(axis=0, dtype=np.float64) / n
    scale = np.sqrt(np.square(np.where(present, x - mean, 0)).sum(axis=0) / n)
    scale[scale <= RESOLVED[x.dtype.name] * np.abs(np.where(present, x, 0)).max(axis=0)] = np.inf
    return Standardisation(mean.astype(x.dtype), scale.astype(x.dtype), tail or np.inf, imputes=True)


def fit_to_batch(x: npt.NDArray[Any], prior: Standardisation) -> Standardisation:
    """Fit to a batch of a new domain, which a small batch changes less.

        mean = w · mean of x + (1 − w) · prior mean,    w = n / (n + PRIOR / max(1, δ)),    the same for the variance

    with δ the squared distance of the two means in units of the prior variance, mean over features: of a domain that is
    far away, a few samples say more than the sources.

    Schneider et al., "Improving robustness against common corruptions by covariate shift adaptation", 2020,
    https://arxiv.org/abs/2006.16971.

    Args:
        x: samples (n, …), NaN where a value of a table is missing.
        prior: of the source domains.

    Example:
        >>> prior = Standardisation(np.float32([0]), np.float32([1]))
        >>> fit_to_batch(np.float32([[1]] * 8), prior).mean.tolist()
        [0.5]
    """
    x, axes = as_units(x), pooled_axes(x)
    present = ~np.isnan(x)
    n = present.sum(axis=axes, keepdims=True)[0].astype(np.float64)
    filled = np.where(present, x, 0).astype(np.float64)
    mean = filled.sum(axis=axes, keepdims=True)[0] / np.maximum(n, 1)
    variance = np.where(present, np.square(filled - mean), 0).sum(axis=axes, keepdims=True)[0] / np.maximum(n, 1)
    apart = float(np.mean(np.square((mean - prior.mean) / prior.scale)))
    values = (n / max(len(x), 1)).clip(min=1)  # of pixels and points in time, as many per sample
    w = n / (n + values * PRIOR / max(1.0, apart))
    mixed = w * mean + (1 - w) * prior.mean, np.sqrt(w * variance + (1 - w) * np.square(prior.scale, dtype=np.float64))
    return replace(prior, mean=mixed[0].astype(prior.mean.dtype), scale=mixed[1].astype(prior.scale.dtype))


def pooled_axes(x: npt.NDArray[Any]) -> tuple[int, ...]:
    """List the axes of samples over which a feature (n, f), or a channel (n, c, …), is pooled.

    >>> pooled_axes(np.zeros((9, 4))), pooled_axes(np.zeros((9, 4, 100)))
    ((0,), (0, 2))
    """
    return (0, *range(2, x.ndim))


def standardise(dataset: DomainDataset, standard: Standardisation) -> DomainDataset:
    """Standardise the samples of a dataset when they are read."""
    inputs = (replace(cast("ArrayInputs", domain.inputs), standard=standard) for domain in dataset.domains)
    domains = tuple(replace(domain, inputs=each) for domain, each in zip(dataset.domains, inputs))
    return replace(dataset, domains=domains)


def as_units(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert x to floats: double precision stays, and types in `SCALED` are scaled to [0, 1]."""
    if x.dtype in SCALED:
        return x.astype(np.float32) / np.float32(np.iinfo(x.dtype).max)
    return x if x.dtype == np.float64 else x.astype(np.float32, copy=False)
