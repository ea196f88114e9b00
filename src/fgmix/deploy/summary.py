"""Summarize predictions by quantiles and counts, and a model in the lines that `fgmix fit` prints."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import numpy.typing as npt

from fgmix.data.dataset import Indices
from fgmix.deploy.overlap import describe_known, describe_new
from fgmix.records.evaluations import METRIC_NAMES
from fgmix.records.model import Estimate, ModelInfo, PredictionSummary
from fgmix.results.other_metrics import percent, worst_domain

FAR = 0.2  # below the target: of a rule that trusts the wrong predictions
QUANTILES = 101  # from the smallest to the largest value


def summarize_predictions(
    probabilities: npt.NDArray[np.floating], novelty: npt.NDArray[np.floating]
) -> PredictionSummary:
    """Summarize calibrated probabilities (n, C) and novelty (n,)."""
    labels = probabilities.argmax(axis=1)
    return summarize_labels(labels, probabilities.max(axis=1), novelty, probabilities.shape[1])


def summarize_labels(
    labels: Indices, confidence: npt.NDArray[np.floating], novelty: npt.NDArray[np.floating], classes: int
) -> PredictionSummary:
    """Summarize predicted classes, their confidence and novelty, each (n,), of a number of classes."""
    levels = np.linspace(0, 1, QUANTILES)
    return PredictionSummary(
        samples=len(labels),
        mean_confidence=float(confidence.mean(dtype=np.float64)),
        novel=float((novelty > 1).mean()),
        confidence=tuple(np.quantile(confidence, levels).astype(np.float64).round(5).tolist()),
        novelty=tuple(np.quantile(novelty, levels).astype(np.float64).round(5).tolist()),
        classes=tuple(np.bincount(labels, minlength=classes).tolist()),
    )


def summarize_model(info: ModelInfo) -> list[str]:
    """Write four lines: expected accuracy and interval, the range seen, what it misses most, and the share trusted.

    A fifth warns of objects that several domains have. Without an estimate it is one line, the accuracy on new samples
    of the model's own domains.
    """
    estimate = info.estimate
    if estimate is None:
        known = f"{percent(info.in_domain_accuracy)} on held-out samples of its own domains"
        return [f"Accuracy: {known}. The accuracy on a new domain was not measured."]
    return [
        _expect(estimate),
        _describe_range(estimate),
        _describe_misses(info, estimate),
        _describe_trust(info, estimate),
        *warn_of_known(info),
    ]


def warn_of_known(info: ModelInfo) -> list[str]:
    """Write a line if objects of a held-out domain are in another one: the estimate is not for new objects then."""
    known = describe_known(info.overlap) if info.overlap else ""
    new = describe_new(info.estimate.new_objects if info.estimate else None)
    return [f"Not only new objects: {known}. {new}"] if known else []


def _expect(estimate: Estimate) -> str:
    """State the mean of the held-out domains, and the interval for one more."""
    expected = f"{percent(estimate.value)} ({describe_interval(estimate)})"
    return f"Expected {METRIC_NAMES[estimate.metric]} on a new domain: {expected}"


def describe_interval(estimate: Estimate) -> str:
    """State the interval for one more domain, or why there is none."""
    if not estimate.interval:
        return "no interval: two domains are too few"
    if not estimate.is_informative:
        why = "have too few samples" if estimate.has_few_samples else "differ too much"
        return f"no interval: the {len(estimate.domains)} domains {why}"
    return f"95 % interval {percent(estimate.interval[0])} to {percent(estimate.interval[1])}"


def _describe_range(estimate: Estimate) -> str:
    worst = worst_domain(estimate.metrics, estimate.metric)
    values = {name: metrics.value(estimate.metric) for name, metrics in estimate.metrics.items()}
    best = max(values, key=values.__getitem__)
    lowest, highest = percent(values[worst]), percent(values[best])
    seen = f"{highest} on each" if lowest == highest else f"{lowest} ({worst}) to {highest} ({best})"
    return f"Seen on held-out domains: {seen}"


def _describe_misses(info: ModelInfo, estimate: Estimate) -> str:
    """Name the class whose samples are found least often, with the mean of its recalls over domains."""
    recalls: dict[str, float] = {}
    for name, values in zip(info.classes, zip(*(metrics.recall for metrics in estimate.metrics.values()))):
        known = [value for value in values if value is not None]
        if known:
            recalls[name] = fmean(known)
    missed = min(recalls, key=recalls.__getitem__)
    return f"Missed most: {missed}, recognised in {percent(recalls[missed])} of its samples, mean over domains"


def _describe_trust(info: ModelInfo, estimate: Estimate) -> str:
    """State the share of trusted predictions and how many of them are correct, with equal weight for each domain."""
    if all(least is None for least in info.min_confidence):
        return "Trusted: no prediction; check all of them by hand"
    trusted = fmean(each.trusted for each in estimate.domains)
    if not trusted:
        return "Trusted: some predictions, by a rule that held-out domains could not test; check all of them by hand"
    correct = fmean(each.trusted * (each.trusted_accuracy or 0.0) for each in estimate.domains) / trusted
    failed = info.terms.min_confidence is None and correct < info.terms.target_accuracy - FAR
    which = "the rule fails on held-out domains, check all" if failed else "check the others"
    return f"Trusted: {percent(trusted)} of the predictions, {percent(correct)} of them correct; {which} by hand"


def describe_adaptation(info: ModelInfo) -> str:
    """State what to expect of predictions that are adapted to their batch."""
    about = info.adaptation
    if about is None:
        return (
            "Predictions are of this batch. What the adaptation changes was not measured for this model: no prediction "
            "is marked as trusted unless --min-confidence was set."
        )
    metric, plain = METRIC_NAMES[about.estimate.metric], info.estimate.value if info.estimate else None
    known = f"Expected {metric}: {percent(about.estimate.value)}, without adaptation {percent(plain)}"
    helped = (
        f"it helps from {about.least} samples on" if about.least else "it did not help in the largest batches measured"
    )
    return f"Predictions are of this batch, whose samples should be of one new domain. {known}; {helped}."
