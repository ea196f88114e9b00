"""When to distrust a prediction: calibrated confidence, and the distance of a sample from all seen in training.

    p = softmax(h(z) / T)                    T: the temperature at which held-out domains' labels are likeliest
    u = z / ‖z‖                              the code's direction: lengths differ too much for one covariance
    m(u) = min_c (u − μ_c)ᵀ Σ⁻¹ (u − μ_c)    μ_c: mean direction of class c, Σ: covariance around their class's mean
    ℓ(z) = max(1, q/‖z‖, ‖z‖/r)              q, r: median and 99 % quantile of the codes' lengths. Codes of inputs
                                             without content are short; those of inputs far outside are long.
    novelty = m(u) · ℓ(z)² / limit           limit: what 99 % of known domains' held-out samples stay below

The code of features far outside, such as those in other units, may be that of a class. Where the network takes features
x, not images, novelty is therefore at least ‖x‖² / size if that is above 1, with a size of twice what 99 % stay below.

Guo et al., "On Calibration of Modern Neural Networks", 2017, https://arxiv.org/abs/1706.04599; Lee et al., "A Simple
Unified Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks", 2018,
https://arxiv.org/abs/1807.03888; Müller and Hein, "Mahalanobis++", 2025, https://arxiv.org/abs/2505.18032 (directions
in place of codes; the factor ℓ is ours). Unlike there, T is fitted on domains that the network never saw,
each weighing the same: confidence on known domains is no guide to that on a new one. docs/your-data.md compares scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from fgmix.data._dataset import Indices
from fgmix.metrics import auroc

Floats = npt.NDArray[np.float64]

KNOWN = 0.99  # share of known domains' held-out samples that count as familiar
LOG_T = (-3.0, 3.0)  # where a temperature is looked for
SHORTEST = 1e-12  # length of a code that has a direction
BINS = 15  # of the calibration error
FAMILIAR = 0.95, 0.99  # shares of the correct predictions on unseen domains that the two parts of novelty let pass
MARGIN = 2.0  # times the squared length of usual features from which they lie far outside: domains differ in it
INFORMATIVE = 0.6  # AUROC from which novelty counts: 0.5 is a coin
NEVER = 2.0  # a confidence that no prediction has
FEWEST = 20  # trusted predictions of held-out domains from which their accuracy means something


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


@dataclass(frozen=True)
class Judged:
    """Predictions for a domain that was held out, with what is known of each.

    Args:
        predicted: the classes, (n,).
        confidence: calibrated on other domains, (n,).
        correct: whether the prediction is, (n,).
        novelty: its parts, (n, 2).
        noise: those of noise, (m, 2).
    """

    predicted: Indices
    confidence: Floats
    correct: npt.NDArray[np.bool_]
    novelty: Floats
    noise: Floats


@dataclass(frozen=True)
class TrustRule:
    """When a prediction is trusted; `choose_rule` makes one.

    Args:
        target: accuracy among the trusted that the confidence was chosen for; None if the confidence was given.
        min_confidence: what a trusted prediction of any class has at least; None: nothing is trusted.
        by_class: what a trusted prediction of each class has at least; None: none of the class is trusted.
        uses_novelty: whether codes tell anything about what is novel.
        novel_above: parts of novelty above which a sample of a new domain counts as novel.
        wrong_auroc: P(a wrong prediction is more novel than a correct one), mean over domains; None if never wrong.
        noise_auroc: P(noise is more novel than a sample), likewise; None if there was no noise.
    """

    target: float | None
    min_confidence: float | None
    by_class: tuple[float | None, ...]
    uses_novelty: bool
    novel_above: tuple[float, float]
    wrong_auroc: float | None
    noise_auroc: float | None

    @property
    def limits(self) -> tuple[float, float]:
        """`novel_above`, infinite for codes that tell nothing."""
        code, size = self.novel_above
        return code if self.uses_novelty else np.inf, size

    def novel(self, parts: Floats) -> npt.NDArray[np.bool_]:
        """Which samples are novel, from the parts of their novelty (n, 2)."""
        return _whole(parts, self.limits) > 1

    def trusted(self, predicted: Indices, confidence: Floats, parts: Floats) -> npt.NDArray[np.bool_]:
        """Which predictions are trusted."""
        return (confidence >= thresholds(self.by_class)[predicted]) & ~self.novel(parts)


def _whole(parts: Floats, limits: tuple[float, float]) -> Floats:
    """Novelty (n,) from its parts (n, 2): above 1 is novel in a new domain.

    The size of features counts only where it is novel: below, it would hide what codes tell.
    """
    code, size = (parts / limits).T
    found: Floats = np.where(size > 1, np.maximum(code, size), code)
    return found


def thresholds(by_class: Sequence[float | None]) -> Floats:
    """Least confidences (C,) as numbers that every prediction can be compared with."""
    return np.array([NEVER if least is None else least for least in by_class])


def choose_rule(
    judged: Sequence[Judged], classes: int, target: float, min_confidence: float | None = None
) -> TrustRule:
    """The rule under which as many predictions as possible are trusted with the target accuracy among them.

    The least confidence of a class is the lowest at which its predictions reach the target, but not below that at which
    all predictions together do: a frequent class would lend its accuracy to a rare one, and few predictions of a class
    reach it by chance. Domains weigh the same. Novelty counts where it tells wrong predictions from correct ones, or
    noise from samples.

    Args:
        judged: domains that were held out.
        classes: their number.
        target: accuracy among the trusted.
        min_confidence: given by the user, in place of the target.
    """
    code, size = (
        max(1.0, _quantile([j.novelty[j.correct, part] for j in judged], share)) for part, share in enumerate(FAMILIAR)
    )
    novelty = [_whole(j.novelty, (code, size)) for j in judged]
    noise = [_whole(j.noise, (code, size)) for j in judged]
    wrong_auroc = _mean([auroc(n, ~j.correct) for n, j in zip(novelty, judged)])
    noise_auroc = _mean([auroc(np.concatenate([n, m]), _last(m, n)) for n, m in zip(novelty, noise)])
    rule = TrustRule(
        target=target if min_confidence is None else None,
        min_confidence=min_confidence,
        by_class=(min_confidence,) * classes,
        uses_novelty=max(wrong_auroc or 0.0, noise_auroc or 0.0) >= INFORMATIVE,
        novel_above=(code, size),
        wrong_auroc=wrong_auroc,
        noise_auroc=noise_auroc,
    )
    if min_confidence is not None:
        return rule
    familiar = [~rule.novel(j.novelty) for j in judged]
    of_all = _least_confidence(judged, familiar, target)
    if of_all is None:
        return replace(rule, by_class=(None,) * classes)
    sure = [f & (j.confidence >= of_all) for j, f in zip(judged, familiar)]
    by_class = tuple(
        _least_confidence(judged, [s & (j.predicted == c) for j, s in zip(judged, sure)], target)
        for c in range(classes)
    )
    return replace(rule, min_confidence=of_all, by_class=by_class)


def _least_confidence(judged: Sequence[Judged], chosen: Sequence[npt.NDArray[np.bool_]], target: float) -> float | None:
    """`least_confidence` of chosen predictions."""
    return least_confidence(
        [j.confidence[which] for j, which in zip(judged, chosen, strict=True)],
        [j.correct[which] for j, which in zip(judged, chosen, strict=True)],
        [len(j.correct) for j in judged],
        target,
    )


def least_confidence(
    confidence: Sequence[Floats], correct: Sequence[npt.NDArray[np.bool_]], sizes: Sequence[int], target: float
) -> float | None:
    """The least confidence at which the predictions above it reach the target accuracy; None where none does.

    Args:
        confidence: of each domain's candidates.
        correct: whether they are.
        sizes: samples of each domain, candidates or not: domains weigh the same.
        target: accuracy to reach, on at least `FEWEST` predictions.

    Example:
        >>> p, correct = np.repeat([0.9, 0.6], 50), np.repeat([True, False], 50)
        >>> least_confidence([p], [correct], [100], 0.9), least_confidence([p], [~correct], [100], 0.9)
        (0.9, None)
    """
    p, hit = np.concatenate(confidence), np.concatenate(correct)
    weight = np.concatenate([np.full(len(c), 1 / n) for c, n in zip(confidence, sizes, strict=True)])
    order = np.argsort(-p, kind="stable")
    p, weight, hit = p[order], weight[order], hit[order]
    accuracy = np.cumsum(weight * hit) / np.cumsum(weight)
    last_of_equals = np.append(p[1:] < p[:-1], True) if len(p) else np.zeros(0, dtype=bool)
    enough = np.arange(1, len(p) + 1) >= FEWEST
    reached = np.flatnonzero(last_of_equals & enough & (accuracy >= target))
    return float(p[reached[-1]]) if len(reached) else None


def _quantile(values: Sequence[Floats], share: float) -> float:
    """The value that a share of all stays at or below, each group weighing the same; 0 for none."""
    groups = [group for group in values if len(group)]
    if not groups:
        return 0.0
    flat = np.concatenate(groups)
    weight = np.concatenate([np.full(len(group), 1 / len(group)) for group in groups]) / len(groups)
    order = np.argsort(flat)
    place = int(np.searchsorted(np.cumsum(weight[order]), share))
    return float(flat[order][min(place, len(flat) - 1)])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _last(noise: Floats, novelty: Floats) -> npt.NDArray[np.bool_]:
    """Which entries of `novelty` followed by `noise` are noise."""
    return np.arange(len(novelty) + len(noise)) >= len(novelty)


class Bin(NamedTuple):
    """Predictions of about one confidence: its mean, the accuracy among them, their share of all."""

    confidence: float
    accuracy: float
    share: float


def reliability(probabilities: Sequence[Floats], y: Sequence[Indices], bins: int = 10) -> tuple[Bin, ...]:
    """Confidence against accuracy over bins of confidence, each domain weighing the same; empty bins are left out.

    Args:
        probabilities: of each domain, (n_e, C).
        y: its labels.
        bins: of equal width.
    """
    confidence = np.concatenate([p.max(axis=1) for p in probabilities])
    correct = np.concatenate([p.argmax(axis=1) == t for p, t in zip(probabilities, y, strict=True)])
    weight = np.concatenate([np.full(len(t), 1 / (len(t) * len(y))) for t in y])
    which = np.minimum((confidence * bins).astype(int), bins - 1)
    found = []
    for b in np.unique(which):
        inside = weight * (which == b)
        share = inside.sum()
        found.append(Bin(*(float(v) for v in ((inside * confidence).sum() / share, inside @ correct / share, share))))
    return tuple(found)


def squared_distances(a: Floats, b: Floats) -> Floats:
    """‖a_i − b_j‖² of all rows, (n, m)."""
    cross: Floats = (a**2).sum(1)[:, None] - 2 * a @ b.T + (b**2).sum(1)
    return np.maximum(cross, 0)
