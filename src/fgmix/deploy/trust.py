"""When to distrust a prediction: calibrated confidence, and the distance of a code from all codes seen in training.

    p = softmax(h(z) / T)                    T: the temperature at which held-out domains' labels are likeliest
    m(z) = min_c (z − μ_c)ᵀ Σ⁻¹ (z − μ_c)    μ_c: mean code of class c, Σ: covariance of codes around their class's mean
    novelty = m(z) / limit                   limit: what 99 % of known domains' held-out samples stay below

Guo et al., "On Calibration of Modern Neural Networks", 2017; Lee et al., "A Simple Unified Framework for Detecting
Out-of-Distribution Samples and Adversarial Attacks", 2018. Unlike them, T is fitted on domains that the network has not
seen, each weighing the same: confidence on known domains is no guide to that on a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from fgmix.data._dataset import Indices

Floats = npt.NDArray[np.float64]

KNOWN = 0.99  # share of known domains' held-out samples that count as familiar
LOG_T = (-3.0, 3.0)  # where a temperature is looked for
BINS = 15  # of the calibration error


def fit_temperature(logits: Sequence[Floats], y: Sequence[Indices]) -> float:
    """The temperature T that makes the labels likeliest, each domain weighing the same.

    Args:
        logits: of each domain, (n_e, C).
        y: its labels, (n_e,).

    Example:
        >>> logits = np.array([[9.0, 0.0]] * 4)  # sure of class 0, and correct three times out of four
        >>> round(float(softmax(logits[0] / fit_temperature([logits], [np.array([0, 0, 0, 1])]))[0]), 2)
        0.75
    """

    def risk(log_t: float) -> float:
        return float(np.mean([_cross_entropy(z / np.exp(log_t), t) for z, t in zip(logits, y, strict=True)]))

    return float(np.exp(minimize_scalar(risk, bounds=LOG_T, method="bounded").x))


def _cross_entropy(logits: Floats, y: Indices) -> float:
    return float(-log_softmax(logits, axis=1)[np.arange(len(y)), y].mean())


def calibration_error(probabilities: Floats, y: Indices, bins: int = BINS) -> float:
    """Expected calibration error: the mean gap between confidence and accuracy over bins of confidence.

    Args:
        probabilities: (n, C).
        y: labels.
        bins: of equal width.

    Example:
        >>> calibration_error(np.array([[0.8, 0.2]] * 4), np.array([0, 0, 0, 1]))  # confidence 0.80, accuracy 0.75
        0.05
    """
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == y
    which = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = [abs((confidence[which == b] - correct[which == b]).sum()) for b in range(bins)]
    return round(float(np.sum(gaps)) / len(y), 12)


def confidences(logits: Floats, temperature: float) -> Floats:
    """Calibrated probabilities (n, C)."""
    found: Floats = softmax(logits / temperature, axis=1)
    return found


@dataclass(frozen=True)
class Familiar:
    """Codes that training has seen, as Gaussians around class means with one covariance.

    Args:
        center: mean of all codes, (d,); distances do not depend on it, but single precision likes small numbers.
        means: W (μ_c − center) of the classes that occur, (C', d).
        whitening: W with WᵀW = Σ⁻¹, (d, d).
        limit: squared distance that counts as novel.
    """

    center: Floats
    means: Floats
    whitening: Floats
    limit: float

    def novelty(self, z: Floats) -> Floats:
        """Squared distance of codes (n, d) to the nearest mean, over the limit: above 1 is novel."""
        nearest: Floats = squared_distances((z - self.center) @ self.whitening.T, self.means).min(axis=1)
        return nearest / self.limit


def fit_familiar(z: Floats, y: Indices, held_out: Floats) -> Familiar:
    """Learn what is familiar.

    Args:
        z: codes (n, d) of training samples.
        y: their labels.
        held_out: codes of samples of the same domains that the network was not trained on: they set the limit, for
            codes of training samples lie closer to their means than new ones of the same kind do.
    """
    from sklearn.covariance import LedoitWolf

    present = np.unique(y)
    means = np.stack([z[y == c].mean(axis=0) for c in present])
    around = z - means[np.searchsorted(present, y)]
    covariance = LedoitWolf(assume_centered=True).fit(around).covariance_
    # A floor for directions in which no code moves (dead units): any move there would be infinitely novel.
    floor = 1e-6 * max(float(np.trace(covariance)) / len(covariance), 1e-12)
    whitening = np.linalg.inv(np.linalg.cholesky(covariance + floor * np.eye(len(covariance))))
    center = z.mean(axis=0)
    bare = Familiar(center, (means - center) @ whitening.T, whitening, 1.0)
    limit = float(np.quantile(bare.novelty(held_out), KNOWN))
    return replace(bare, limit=max(limit, 1e-30))  # 0 where all codes are one


def squared_distances(a: Floats, b: Floats) -> Floats:
    """‖a_i − b_j‖² of all rows, (n, m)."""
    cross: Floats = (a**2).sum(1)[:, None] - 2 * a @ b.T + (b**2).sum(1)
    return np.maximum(cross, 0)
