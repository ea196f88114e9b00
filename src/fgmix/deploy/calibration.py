"""Calibrate the confidence for a new domain: temperature scaling and reliability.

    p = softmax(h(z) / T)                    T: the temperature that maximises the likelihood on held-out domains

Guo et al., "On Calibration of Modern Neural Networks", 2017, https://arxiv.org/abs/1706.04599. Unlike there, T is
fitted on held-out domains with equal weights: calibration on the source domains does not carry over to a new one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from fgmix.data.dataset import Indices
from fgmix.records.metrics import Floats
from fgmix.records.model import Bin

BINS = 10  # of equal width, of a reliability diagram
LOG_T = (-3.0, 3.0)  # bounds of log T


def fit_temperature(logits: Sequence[Floats], y: Sequence[Indices]) -> float:
    """Fit the temperature T that maximises the likelihood of the labels, with equal weight for each domain.

    T = 1 if all predictions are correct: the likelihood would then increase as T decreases to 0, and any input would
    get the confidence 1.

    Args:
        logits: of each domain, (n_e, C).
        y: its labels, (n_e,).

    Example:
        >>> logits = np.array([[9.0, 0.0]] * 4)  # sure of class 0, and correct three times out of four
        >>> round(float(softmax(logits[0] / fit_temperature([logits], [np.array([0, 0, 0, 1])]))[0]), 2)
        0.75
    """

    if all((z.argmax(axis=1) == t).all() for z, t in zip(logits, y, strict=True)):
        return 1.0

    def risk(log_t: float) -> float:
        return float(np.mean([_cross_entropy(z / np.exp(log_t), t) for z, t in zip(logits, y, strict=True)]))

    return float(np.exp(minimize_scalar(risk, bounds=LOG_T, method="bounded").x))


def _cross_entropy(logits: Floats, y: Indices) -> float:
    return float(-log_softmax(logits, axis=1)[np.arange(len(y)), y].mean())


def calibrate_logits(logits: Floats, temperature: float) -> Floats:
    """Compute calibrated probabilities (n, C)."""
    probabilities: Floats = softmax(logits / temperature, axis=1)
    return probabilities


def measure_reliability(probabilities: Sequence[Floats], y: Sequence[Indices]) -> tuple[Bin, ...]:
    """Measure accuracy against confidence in bins, with equal weight for each domain, without empty bins.

    Args:
        probabilities: of each domain, (n_e, C).
        y: its labels.
    """
    confidence = np.concatenate([p.max(axis=1) for p in probabilities])
    correct = np.concatenate([p.argmax(axis=1) == t for p, t in zip(probabilities, y, strict=True)])
    weight = np.concatenate([np.full(len(t), 1 / (len(t) * len(y))) for t in y])
    which = np.minimum((confidence * BINS).astype(int), BINS - 1)
    filled = []
    for b in np.unique(which):
        inside = weight * (which == b)
        share = inside.sum()
        filled.append(Bin(*(float(v) for v in ((inside * confidence).sum() / share, inside @ correct / share, share))))
    return tuple(filled)
