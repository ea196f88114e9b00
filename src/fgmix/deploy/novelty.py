"""Novelty: how far a sample is from the training data.

    u = z / ‖z‖                              the code's direction: lengths differ too much for one covariance
    m(u) = min_c (u − μ_c)ᵀ Σ⁻¹ (u − μ_c)    μ_c: mean direction of class c, Σ: covariance around the class means
    ℓ(z) = max(1, q/‖z‖, ‖z‖/r)              q, r: median and 99 % quantile of ‖z‖ on holdout samples. Codes of inputs
                                             without content are short; those of extreme inputs are long.
    novelty = m(u) · ℓ(z)² / limit           limit: 99 % quantile on holdout samples of the source domains

Extreme features, such as those in other units, may have the code of a class. If the inputs x of the network are
features, or standardised, novelty is therefore at least ‖x‖² / size where that is above 1; size is twice the 99 %
quantile of ‖x‖².

Lee et al., "A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks", 2018,
https://arxiv.org/abs/1807.03888; Müller and Hein, "Mahalanobis++", 2025, https://arxiv.org/abs/2505.18032 (directions
in place of codes; the factor ℓ is ours). docs/fit/trust.md compares scores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from fgmix.data.dataset import Indices
from fgmix.records.metrics import Floats

KNOWN = 0.99  # share of the source domains' holdout samples that count as familiar
SHORTEST = 1e-12  # minimum length of a code, so that it has a direction
MARGIN = 2.0  # times the quantile of ‖x‖² from which features count as novel: domains differ in it


@dataclass(frozen=True)
class Familiar:
    """Directions of codes of the training data, as Gaussians around class means with one covariance."""

    center: Floats  # mean of all directions, (d,); distances do not depend on it, but it improves single precision
    means: Floats  # W (μ_c − center) of the classes that occur, (C', d)
    whitening: Floats  # W with WᵀW = Σ⁻¹, (d, d)
    usual: float  # length q; shorter codes are more novel
    reach: float  # length r; longer codes are more novel
    limit: float  # squared distance above which a code is novel
    size: float = np.inf  # squared length above which features are novel; infinite for images

    def parts(self, z: Floats, x: Floats) -> Floats:
        """Compute both parts of the novelty (n, 2): of the codes z (n, d), and ‖x‖² / size of the inputs x (n, …)."""
        return np.stack([self.novelty(z), squared_lengths(x) / self.size], axis=1)

    def novelty(self, z: Floats) -> Floats:
        """Compute the squared distance of codes (n, d) to the nearest mean, over the limit: above 1 is novel."""
        length = np.maximum(np.linalg.norm(z, axis=1), SHORTEST)
        directions = z / length[:, None]
        nearest = squared_distances((directions - self.center) @ self.whitening.T, self.means).min(axis=1)
        factor = np.maximum(1, np.maximum(self.usual / length, length / self.reach)) ** 2
        novelty: Floats = nearest * factor / self.limit
        return novelty


def fit_familiar(z: Floats, y: Indices, holdout: Floats, features: Floats | None = None) -> Familiar:
    """Fit a `Familiar` to the codes of source domains.

    Args:
        z: codes (n, d) of training samples.
        y: their labels.
        holdout: codes of samples of the same domains that were not trained on. They set q, r and the limit: codes of
            training samples are closer to their means than those of new samples.
        features: inputs of `holdout`, (m, …), if they are features or standardised; None for others.
    """
    usual, reach = np.maximum(np.quantile(np.linalg.norm(holdout, axis=1), (0.5, KNOWN)), SHORTEST).tolist()
    z = z / np.maximum(np.linalg.norm(z, axis=1), SHORTEST)[:, None]
    present = np.unique(y)
    means = np.stack([z[y == c].mean(axis=0) for c in present])
    around = z - means[np.searchsorted(present, y)]
    covariance = shrink_covariance(around)
    # A floor for directions without variance (dead units): any deviation there would be infinitely novel.
    floor = 1e-6 * max(float(np.trace(covariance)) / len(covariance), 1e-12)
    identity = np.eye(len(covariance))
    whitening = solve_triangular(np.linalg.cholesky(covariance + floor * identity), identity, lower=True)
    center = z.mean(axis=0)
    bare = Familiar(center, (means - center) @ whitening.T, whitening, usual, reach, 1.0)
    limit = float(np.quantile(bare.novelty(holdout), KNOWN))
    size = np.inf if features is None else MARGIN * float(np.quantile(squared_lengths(features), KNOWN))
    return replace(bare, limit=max(limit, 1e-30), size=max(size, 1e-30))  # 0 if all codes are equal


def shrink_covariance(x: Floats) -> Floats:
    """Compute the covariance of centred rows (n, d), shrunk towards a multiple of the identity.

        S = xᵀx / n,    μ = tr S / d,    Σ = (1 − ρ) S + ρ μ I,    ρ = min(1, (Σ_i ‖x_i‖⁴ / n − ‖S‖²) / n / ‖S − μ I‖²)

    Ledoit and Wolf, "A well-conditioned estimator for large-dimensional covariance matrices", 2004,
    https://doi.org/10.1016/S0047-259X(03)00096-4. scikit-learn's `LedoitWolf` finds Σ_i ‖x_i‖⁴ by products of matrices,
    which take eight times as long for 2,048 features.
    """
    n, d = x.shape
    s = x.T @ x / n
    mean = np.trace(s) / d
    distance = np.square(s).sum() - d * mean**2  # ‖S − μ I‖²
    noise = (np.square(np.square(x).sum(axis=1)).mean() - np.square(s).sum()) / n
    share = min(1.0, noise / distance) if distance > 0 else 0.0
    shrunk: Floats = (1 - share) * s
    shrunk.flat[:: d + 1] += share * mean
    return shrunk


def squared_lengths(x: Floats) -> Floats:
    """Compute ‖x_i‖² of all rows, (n,)."""
    squares: Floats = np.square(x.reshape(len(x), -1), dtype=np.float64).sum(axis=1)
    return squares


def squared_distances(a: Floats, b: Floats) -> Floats:
    """Compute ‖a_i − b_j‖² of all rows, (n, m)."""
    cross: Floats = (a**2).sum(1)[:, None] - 2 * a @ b.T + (b**2).sum(1)
    return np.maximum(cross, 0)
