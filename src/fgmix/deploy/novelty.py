"""How far a sample lies from all seen in training.

    u = z / ‖z‖                              the code's direction: lengths differ too much for one covariance
    m(u) = min_c (u − μ_c)ᵀ Σ⁻¹ (u − μ_c)    μ_c: mean direction of class c, Σ: covariance around their class's mean
    ℓ(z) = max(1, q/‖z‖, ‖z‖/r)              q, r: median and 99 % quantile of the codes' lengths. Codes of inputs
                                             without content are short; those of inputs far outside are long.
    novelty = m(u) · ℓ(z)² / limit           limit: what 99 % of known domains' held-out samples stay below

The code of features far outside, such as those in other units, may be that of a class. Where the network takes features
x, not images, novelty is therefore at least ‖x‖² / size if that is above 1, with a size of twice what 99 % stay below.

Lee et al., "A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks", 2018,
https://arxiv.org/abs/1807.03888; Müller and Hein, "Mahalanobis++", 2025, https://arxiv.org/abs/2505.18032 (directions
in place of codes; the factor ℓ is ours). docs/your-data.md compares scores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fgmix.data._dataset import Indices
from fgmix.metrics import Floats

KNOWN = 0.99  # share of known domains' held-out samples that count as familiar
SHORTEST = 1e-12  # length of a code that has a direction
MARGIN = 2.0  # times the squared length of usual features from which they lie far outside: domains differ in it


@dataclass(frozen=True)
class Familiar:
    """Directions of codes that training has seen, as Gaussians around class means with one covariance.

    Args:
        center: mean of all directions, (d,); distances do not depend on it, but single precision likes small numbers.
        means: W (μ_c − center) of the classes that occur, (C', d).
        whitening: W with WᵀW = Σ⁻¹, (d, d).
        usual: length q, below which codes are the more novel the shorter they are.
        reach: length r, above which codes are the more novel the longer they are.
        limit: squared distance that counts as novel.
        size: squared length of the features that counts as novel; infinite for images.
    """

    center: Floats
    means: Floats
    whitening: Floats
    usual: float
    reach: float
    limit: float
    size: float = np.inf

    def parts(self, z: Floats, x: Floats) -> Floats:
        """Both parts of the novelty (n, 2) of codes z (n, d) and of what they were computed from, x (n, …)."""
        return np.stack([self.novelty(z), squared_lengths(x) / self.size], axis=1)

    def novelty(self, z: Floats) -> Floats:
        """Squared distance of codes (n, d) to the nearest mean, over the limit: above 1 is novel."""
        length = np.maximum(np.linalg.norm(z, axis=1), SHORTEST)
        directions = z / length[:, None]
        nearest = squared_distances((directions - self.center) @ self.whitening.T, self.means).min(axis=1)
        found: Floats = nearest * np.maximum(1, np.maximum(self.usual / length, length / self.reach)) ** 2 / self.limit
        return found


def fit_familiar(z: Floats, y: Indices, held_out: Floats, features: Floats | None = None) -> Familiar:
    """Learn what is familiar.

    Args:
        z: codes (n, d) of training samples.
        y: their labels.
        held_out: codes of samples of the same domains that the network was not trained on: they set the limit, for
            codes of training samples lie closer to their means than new ones of the same kind do.
        features: what these codes were computed from, (m, f); None for images.
    """
    from sklearn.covariance import LedoitWolf

    usual, reach = np.maximum(np.quantile(np.linalg.norm(held_out, axis=1), (0.5, KNOWN)), SHORTEST).tolist()
    z = z / np.maximum(np.linalg.norm(z, axis=1), SHORTEST)[:, None]
    present = np.unique(y)
    means = np.stack([z[y == c].mean(axis=0) for c in present])
    around = z - means[np.searchsorted(present, y)]
    covariance = LedoitWolf(assume_centered=True).fit(around).covariance_
    # A floor for directions in which no code moves (dead units): any move there would be infinitely novel.
    floor = 1e-6 * max(float(np.trace(covariance)) / len(covariance), 1e-12)
    whitening = np.linalg.inv(np.linalg.cholesky(covariance + floor * np.eye(len(covariance))))
    center = z.mean(axis=0)
    bare = Familiar(center, (means - center) @ whitening.T, whitening, usual, reach, 1.0)
    limit = float(np.quantile(bare.novelty(held_out), KNOWN))
    size = np.inf if features is None else MARGIN * float(np.quantile(squared_lengths(features), KNOWN))
    return replace(bare, limit=max(limit, 1e-30), size=max(size, 1e-30))  # 0 where all codes are one


def squared_lengths(x: Floats) -> Floats:
    """‖x_i‖² of all rows, (n,)."""
    found: Floats = np.square(x.reshape(len(x), -1), dtype=np.float64).sum(axis=1)
    return found


def squared_distances(a: Floats, b: Floats) -> Floats:
    """‖a_i − b_j‖² of all rows, (n, m)."""
    cross: Floats = (a**2).sum(1)[:, None] - 2 * a @ b.T + (b**2).sum(1)
    return np.maximum(cross, 0)
