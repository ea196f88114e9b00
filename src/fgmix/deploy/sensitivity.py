"""Thresholds on the probability of a class for a wanted sensitivity, chosen on held-out domains.

    sensitivity_e(t) = share of the samples of the class in domain e with p ≥ t
    threshold        = the largest t with mean_e sensitivity_e(t) ≥ the wanted one; every domain counts the same

What to expect of it in a new domain is measured by leaving one out: the threshold that the other domains choose is
applied to it. That costs specificity, the share of the samples of other classes with p < t.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from fgmix.data.dataset import Indices
from fgmix.errors import UserError, unknown
from fgmix.records.metrics import Floats
from fgmix.records.model import ModelInfo, OperatingPoint

WANTED = (0.8, 0.9, 0.95, 0.98, 0.99)  # sensitivities that the card reports
STEP = 0.01  # between the sensitivities that a model stores thresholds for, up to 1
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
    return tuple(
        _choose_points(held_out, reported, label) for label in range(classes if classes <= MOST_CLASSES else 0)
    )


def _choose_points(
    held_out: Sequence[ScoredDomain], reported: Sequence[Sequence[ScoredDomain]], label: int
) -> tuple[OperatingPoint, ...]:
    sensitivities, specificities = [], []  # by domain, for each wanted sensitivity
    for place, domains in enumerate(reported):
        chosen = choose_thresholds([*domains[:place], *domains[place + 1 :]], label, WANTED)
        flagged = domains[place].probabilities[:, label, None] >= np.array(chosen)
        is_positive = domains[place].y == label
        if chosen and is_positive.any():
            sensitivities.append(flagged[is_positive].mean(axis=0).tolist())
        if chosen and not is_positive.all():
            specificities.append((~flagged[~is_positive]).mean(axis=0).tolist())
    missing = [None] * len(WANTED)
    columns = (
        choose_thresholds(held_out, label, WANTED) or missing,
        [fmean(values) for values in zip(*sensitivities)] or missing,
        [min(values) for values in zip(*sensitivities)] or missing,
        [fmean(values) for values in zip(*specificities)] or missing,
    )
    return tuple(OperatingPoint(*values) for values in zip(WANTED, *columns, strict=True))


def choose_all_thresholds(held_out: Sequence[ScoredDomain]) -> tuple[tuple[float, ...], ...]:
    """Choose thresholds for each class (row) and sensitivities of `STEP`, 2 `STEP`, …, 1; an empty row without any."""
    classes = held_out[0].probabilities.shape[1]
    levels = np.linspace(STEP, 1, round(1 / STEP))
    rows = (choose_thresholds(held_out, c, levels) for c in range(classes if classes <= MOST_CLASSES else 0))
    return tuple(tuple(math.floor(1e6 * t) / 1e6 for t in row) for row in rows)  # never above what was chosen


def choose_thresholds(domains: Sequence[ScoredDomain], label: int, wanted: Sequence[float] | Floats) -> list[float]:
    """Choose the largest threshold with each wanted mean sensitivity; none if no domain has the class.

    >>> p = np.array([[0.1, 0.9], [0.4, 0.6], [0.8, 0.2], [0.7, 0.3]])
    >>> choose_thresholds([ScoredDomain(p, np.array([1, 1, 0, 1]))], label=1, wanted=[0.6, 0.7])
    [0.6, 0.3]
    """
    positives = [each.probabilities[each.y == label, label] for each in domains]
    positives = [p for p in positives if len(p)]
    if not positives:
        return []
    p = np.concatenate(positives)
    weight = np.concatenate([np.full(len(each), 1 / (len(each) * len(positives))) for each in positives])
    order = np.argsort(-p, kind="stable")
    reached = np.searchsorted(np.cumsum(weight[order]), np.asarray(wanted) - 1e-9)  # sums of shares are rounded
    thresholds: list[float] = p[order][reached].tolist()
    return thresholds


def find_thresholds(info: ModelInfo, wanted: Mapping[str, float]) -> dict[str, float]:
    """Return the thresholds of a model for wanted sensitivities, by class; UserError if there are none.

    A sensitivity between two steps gets the threshold of the higher one.
    """
    operating = info.estimate.operating if info.estimate else ()
    if info.estimate is None or not operating:
        raise UserError(
            "Expected a model with thresholds for a sensitivity. Found none: fit it again, with an estimate."
        )
    found = {}
    for name, share in wanted.items():
        if name not in info.classes:
            raise unknown("class", name, info.classes)
        number = info.classes.index(name)
        points = {point.wanted: point.threshold for point in operating[number]}
        if share not in points and not 0 < share < 1:
            raise UserError(f"Expected a sensitivity between 0 and 1. Found {share:g} for {name}.")
        if share not in points and not info.estimate.thresholds:  # made before models stored them
            raise UserError(f"Expected a sensitivity among {', '.join(map(str, WANTED))}. Found {share:g} for {name}.")
        curve = info.estimate.thresholds[number] if info.estimate.thresholds else ()
        threshold = points[share] if share in points else curve[math.ceil(share / STEP - 1e-9) - 1] if curve else None
        if threshold is None:
            raise UserError(f"Expected a class that several domains have. Found {name}, for which none was chosen.")
        found[name] = threshold
    return found
