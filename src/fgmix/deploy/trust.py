"""The trust rule: a prediction is trusted if it is confident enough for its class and its sample is not novel.

Thresholds are chosen such that trusted predictions reach a target accuracy on held-out domains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from fgmix.data.dataset import Indices
from fgmix.records.metrics import Floats, auroc
from fgmix.records.model import TrustRule

FAMILIAR = 0.95, 0.99  # shares of correct predictions on held-out domains that are not novel, by part of novelty
INFORMATIVE = 0.6  # AUROC from which novelty is used: 0.5 is chance
NEVER = 2.0  # a confidence that no prediction has
FEWEST = 20  # least number of trusted predictions that their accuracy is estimated from


@dataclass(frozen=True)
class JudgedDomain:
    """Predictions for a domain that was held out."""

    predicted: Indices  # classes, (n,)
    confidence: Floats  # calibrated on other domains, (n,)
    correct: npt.NDArray[np.bool_]  # whether each prediction is correct, (n,)
    novelty: Floats  # both parts of it, (n, 2), see `Familiar.parts`
    noise: Floats  # both parts of the novelty of noise, (m, 2)


def find_novel(rule: TrustRule, parts: Floats) -> npt.NDArray[np.bool_]:
    """Tell which samples are novel, from the parts of their novelty (n, 2)."""
    return combine_parts(parts, rule.limits) > 1


def find_trusted(rule: TrustRule, predicted: Indices, confidence: Floats, parts: Floats) -> npt.NDArray[np.bool_]:
    """Tell which predictions are trusted, from their class, confidence and novelty."""
    return (confidence >= fill_thresholds(rule.by_class)[predicted]) & ~find_novel(rule, parts)


def combine_parts(parts: Floats, limits: tuple[float, float]) -> Floats:
    """Compute novelty (n,) from its parts (n, 2); above 1 is novel.

    The size of features counts only above its limit: below, it would mask the novelty of the codes.
    """
    code, size = (parts / limits).T
    novelty: Floats = np.where(size > 1, np.maximum(code, size), code)
    return novelty


def fill_thresholds(by_class: Sequence[float | None]) -> Floats:
    """Return minimum confidences (C,) as numbers; `NEVER` for None."""
    return np.array([NEVER if least is None else least for least in by_class])


def choose_rule(
    judged: Sequence[JudgedDomain], classes: int, target: float, min_confidence: float | None = None
) -> TrustRule:
    """Choose the rule that trusts as many predictions as possible at the target accuracy.

    The minimum confidence of a class is the lowest at which its predictions reach the target, but not below that at
    which all predictions together do. By class, because a frequent class would hide a rare one; not below the common
    one, because few predictions of a class may reach the target by chance. Domains have equal weights. Novelty is used
    if it separates wrong predictions from correct ones, or noise from samples.

    Args:
        judged: domains that were held out.
        classes: number of classes.
        target: target accuracy of trusted predictions.
        min_confidence: set by the user, instead of the target.
    """
    code, size = (
        max(1.0, _quantile([j.novelty[j.correct, part] for j in judged], share)) for part, share in enumerate(FAMILIAR)
    )
    novelty = [combine_parts(j.novelty, (code, size)) for j in judged]
    noise = [combine_parts(j.noise, (code, size)) for j in judged]
    wrong_auroc = _mean([auroc(n, ~j.correct) for n, j in zip(novelty, judged)])
    noise_auroc = _mean(
        [auroc(np.concatenate([n, m]), np.arange(len(n) + len(m)) >= len(n)) for n, m in zip(novelty, noise)]
    )
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
    familiar = [~find_novel(rule, j.novelty) for j in judged]
    of_all = _find_least_confidence(judged, familiar, target)
    if of_all is None:
        return replace(rule, by_class=(None,) * classes)
    sure = [f & (j.confidence >= of_all) for j, f in zip(judged, familiar)]
    by_class = tuple(
        _find_least_confidence(judged, [s & (j.predicted == c) for j, s in zip(judged, sure)], target)
        for c in range(classes)
    )
    return replace(rule, min_confidence=of_all, by_class=by_class)


def _find_least_confidence(
    judged: Sequence[JudgedDomain], chosen: Sequence[npt.NDArray[np.bool_]], target: float
) -> float | None:
    """Find the lowest confidence from which on the chosen predictions reach the target accuracy.

    At least `FEWEST` of them must; None if there is no such confidence. Domains have equal weights, by all of their
    samples.
    """
    pairs = list(zip(judged, chosen, strict=True))
    p = np.concatenate([j.confidence[which] for j, which in pairs])
    hit = np.concatenate([j.correct[which] for j, which in pairs])
    weight = np.concatenate([np.full(which.sum(), 1 / len(which)) for which in chosen])
    order = np.argsort(-p, kind="stable")
    p, weight, hit = p[order], weight[order], hit[order]
    accuracy = np.cumsum(weight * hit) / np.cumsum(weight)
    last_of_equals = np.append(p[1:] < p[:-1], True) if len(p) else np.zeros(0, dtype=bool)
    enough = np.arange(1, len(p) + 1) >= FEWEST
    reached = np.flatnonzero(last_of_equals & enough & (accuracy >= target))
    return float(p[reached[-1]]) if len(reached) else None


def _quantile(values: Sequence[Floats], share: float) -> float:
    """Compute the quantile at `share`, with equal weight for each group; 0 without values."""
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
