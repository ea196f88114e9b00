"""Thresholds on the probability of a class for a wanted sensitivity, chosen on held-out domains.

    sensitivity_e(t) = share of the samples of the class in domain e with p ≥ t
    threshold        = the largest t with mean_e sensitivity_e(t) ≥ the wanted one; every domain counts the same

What to expect of it in a new domain is measured by leaving one out: the threshold that the other domains choose is
applied to it. That costs specificity, the share of the samples of other classes with p < t.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from fgmix.data.dataset import Indices
from fgmix.errors import UserError, unknown
from fgmix.records.metrics import Floats
from fgmix.records.model import ModelInfo, OperatingPoint

WANTED = (0.8, 0.9, 0.95, 0.98, 0.99)
MOST_CLASSES = 100  # for which thresholds are chosen


@dataclass(frozen=True)
class ScoredDomain:
    """Samples of a held-out domain whose class another domain has."""

    probabilities: Floats  # calibrated on other domains, (n, C)
    y: Indices  # labels, (n,)


def choose_operating_points(
    held_out: Sequence[ScoredDomain], reported: Sequence[Sequence[ScoredDomain]]
) -> tuple[tuple[OperatingPoint, ...], ...]:
    """Choose thresholds for each class (row) and each wanted sensitivity; none for more than `MOST_CLASSES`.

    Args:
        held_out: the domains, predicted by the recipe of the model, which choose the thresholds.
        reported: for each domain, all domains as predicted by the recipe that was chosen without it. The others choose
            the threshold by which it is reported.
    """
    classes = held_out[0].probabilities.shape[1]
    if classes > MOST_CLASSES:
        return ()
    return tuple(
        tuple(_choose_point(held_out, reported, label, wanted) for wanted in WANTED) for label in range(classes)
    )


def _choose_point(
    held_out: Sequence[ScoredDomain], reported: Sequence[Sequence[ScoredDomain]], label: int, wanted: float
) -> OperatingPoint:
    sensitivities, specificities = [], []
    for place, domains in enumerate(reported):
        t = choose_threshold([*domains[:place], *domains[place + 1 :]], label, wanted)
        p, is_positive = domains[place].probabilities[:, label], domains[place].y == label
        if t is not None and is_positive.any():
            sensitivities.append(float((p[is_positive] >= t).mean()))
        if t is not None and not is_positive.all():
            specificities.append(float((p[~is_positive] < t).mean()))
    return OperatingPoint(
        wanted=wanted,
        threshold=choose_threshold(held_out, label, wanted),
        sensitivity=fmean(sensitivities) if sensitivities else None,
        lowest=min(sensitivities, default=None),
        specificity=fmean(specificities) if specificities else None,
    )


def choose_threshold(domains: Sequence[ScoredDomain], label: int, wanted: float) -> float | None:
    """Choose the largest threshold with the wanted mean sensitivity; None if no domain has the class.

    >>> p = np.array([[0.1, 0.9], [0.4, 0.6], [0.8, 0.2], [0.7, 0.3]])
    >>> choose_threshold([ScoredDomain(p, np.array([1, 1, 0, 1]))], label=1, wanted=0.6)
    0.6
    """
    positives = [each.probabilities[each.y == label, label] for each in domains]
    positives = [p for p in positives if len(p)]
    if not positives:
        return None
    p = np.concatenate(positives)
    weight = np.concatenate([np.full(len(each), 1 / (len(each) * len(positives))) for each in positives])
    order = np.argsort(-p, kind="stable")
    reached = np.cumsum(weight[order]) >= wanted - 1e-9  # sums of shares are rounded
    return float(p[order][int(reached.argmax())])


def find_thresholds(info: ModelInfo, wanted: Mapping[str, float]) -> dict[str, float]:
    """Return the thresholds of a model for wanted sensitivities, by class; UserError if there are none."""
    operating = info.estimate.operating if info.estimate else ()
    if not operating:
        raise UserError(
            "Expected a model with thresholds for a sensitivity. Found none: fit it again, with an estimate."
        )
    found = {}
    for name, share in wanted.items():
        if name not in info.classes:
            raise unknown("class", name, info.classes)
        points = {point.wanted: point.threshold for point in operating[info.classes.index(name)]}
        threshold = points.get(share)
        if share not in points:
            raise UserError(f"Expected a sensitivity among {', '.join(map(str, WANTED))}. Found {share:g} for {name}.")
        if threshold is None:
            raise UserError(f"Expected a class that several domains have. Found {name}, for which none was chosen.")
        found[name] = threshold
    return found
