"""Estimate for an unseen domain: each domain is held out in turn, and predicted by a model trained on the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

from fgmix.data.dataset import Indices
from fgmix.deploy.calibration import calibrate_logits, fit_temperature, measure_reliability
from fgmix.deploy.hold_out import HeldOut
from fgmix.deploy.sensitivity import ScoredDomain, choose_all_thresholds, choose_operating_points
from fgmix.deploy.summary import summarize_predictions
from fgmix.deploy.trust import JudgedDomain, choose_rule, combine_parts, find_novel, find_trusted
from fgmix.errors import UserError
from fgmix.records.evaluations import Metric
from fgmix.records.metrics import Floats, calibration_error, metrics
from fgmix.records.model import (
    Estimate,
    NewObjects,
    PredictedClass,
    PredictionSummary,
    Terms,
    TrustLevel,
    TrustRule,
    UnseenDomain,
)

LEVELS = (0.0, 0.5, 0.7, 0.9, 0.95)  # of confidence, at which coverage and accuracy are reported
FEWEST_GROUPS = 10  # new groups of a domain: the number of objects counts, not that of their samples
FEWEST_KNOWN = 20  # samples of known groups in a domain
MOST_CLASSES = 100  # of a confusion matrix
UPPER = (1 + 0.95) / 2  # quantile of the upper end of a 95 % interval


@dataclass(frozen=True)
class _Judged:
    """A held-out domain, with probabilities and a trust rule that the other domains chose."""

    held_out: HeldOut
    known: npt.NDArray[np.bool_]  # samples whose class another domain has
    probabilities: Floats
    domain: JudgedDomain  # the known samples
    rule: TrustRule
    temperature: float


def estimate(
    held_out: Sequence[HeldOut],
    levels: Iterable[float] = LEVELS,
    *,
    metric: Metric = "accuracy",
    terms: Terms | None = None,
    reported: Sequence[Sequence[HeldOut]] | None = None,
) -> Estimate:
    """Compute the estimate from the domains that were held out, at least two of which share a class.

    Args:
        held_out: the domains, predicted by the recipe of the model.
        levels: of confidence, at which coverage and accuracy are reported.
        metric: the metric that is reported first.
        terms: target accuracy or minimum confidence of trusted predictions.
        reported: for each domain, all domains as predicted by the recipe that was chosen without it, from which its
            results are reported; None if there was nothing to choose.
    """
    terms = terms or Terms()
    asked = held_out[0].logits.shape[1], terms.target_accuracy, terms.min_confidence
    own = _judge_all(held_out, asked)
    others = {id(each): _judge_all(each, asked) for each in reported or () if each is not held_out}
    reports = [others.get(id(each), own) for each in reported or [held_out] * len(held_out)]
    judged = [each[i] for i, each in enumerate(reports)]
    domains = tuple(map(_describe_domain, judged))
    values = [domain.metrics.value(metric) for domain in domains]
    shared = [j.domain for j in own if len(j.domain.correct)]
    trust = choose_rule(shared, *asked)
    variance = _compute_counting_variance([j.held_out for j in judged], metric)
    return Estimate(
        domains=domains,
        accuracy=float(np.mean([domain.accuracy for domain in domains])),
        metric=metric,
        value=float(np.mean(values)),
        interval=prediction_interval(values, floor=variance),
        floor=variance**0.5,
        temperature=_fit_temperature(held_out, [j.known for j in own]),
        trust=trust,
        levels=tuple(_measure_level(level, shared, trust) for level in sorted({*levels, trust.min_confidence or 0.0})),
        reliability=measure_reliability([j.probabilities for j in judged], [j.held_out.y for j in judged]),
        predicted=_count_predicted(judged),
        operating=choose_operating_points(_score_known(own), list(map(_score_known, reports))),
        thresholds=choose_all_thresholds(_score_known(own)),
        new_objects=_describe_new_objects(judged, metric, trust),
    )


def _describe_new_objects(judged: Sequence[_Judged], metric: Metric, trust: TrustRule) -> NewObjects | None:
    """Compare new groups with known ones, each in the domains that have enough of them; None if either has none.

    Macro F1 depends on the number of samples, of which there are fewer new ones: balanced accuracy takes its place.
    `trust` is the rule of the model: what held-out domains trust does not count if it trusts nothing.
    """
    metric = "balanced_accuracy" if metric == "macro_f1" else metric
    marked = [(each, each.held_out.new) for each in judged if each.held_out.new is not None]
    unseen = [(each, new) for each, new in marked if _count_new(new) >= FEWEST_GROUPS]
    known = [(each, new) for each, new in marked if (new < 0).sum() >= FEWEST_KNOWN]
    if not (unseen and known):
        return None
    trusts = any(least is not None for least in trust.by_class)
    trusted = np.concatenate([_find_trusted(each)[new >= 0] & trusts for each, new in unseen])
    correct = np.concatenate([each.held_out.correct[new >= 0] for each, new in unseen])
    return NewObjects(
        metric=metric,
        value=float(np.mean([_measure(each, metric, new >= 0) for each, new in unseen])),
        known=float(np.mean([_measure(each, metric, new < 0) for each, new in known])),
        groups=_count_new(np.concatenate([new for _, new in unseen])),
        trusted=float(trusted.mean()),
        trusted_accuracy=float(correct[trusted].mean()) if trusted.any() else None,
    )


def _count_new(new: Indices) -> int:
    return len(np.unique(new[new >= 0]))


def _measure(judged: _Judged, metric: Metric, rows: npt.NDArray[np.bool_]) -> float:
    p = judged.probabilities[rows]
    return metrics(judged.held_out.y[rows], p.argmax(axis=1), p, MOST_CLASSES).value(metric)


def _judge_all(held_out: Sequence[HeldOut], asked: tuple[int, float, float | None]) -> list[_Judged]:
    """Calibrate each domain and choose its trust rule by the other ones."""
    known = [_find_known(held_out, h) for h in held_out]
    temperatures = [_fit_temperature(held_out, known, without=h) for h in held_out]
    probabilities = [calibrate_logits(h.logits, t) for h, t in zip(held_out, temperatures, strict=True)]
    domains = [_judge(h, p, mask) for h, p, mask in zip(held_out, probabilities, known, strict=True)]
    shared = [j for j in domains if len(j.correct)]  # all classes of a domain may be missing in the others
    rules = [choose_rule([j for j in shared if j is not own], *asked) for own in domains]
    return list(map(_Judged, held_out, known, probabilities, domains, rules, temperatures))


def _score_known(judged: Sequence[_Judged]) -> list[ScoredDomain]:
    return [ScoredDomain(j.probabilities[j.known], j.held_out.y[j.known]) for j in judged]


def check_shared_classes(labels: Sequence[Indices], hint: str = "") -> None:
    """Raise an error if no two domains share a class: none could be predicted by a network trained on the others.

    Args:
        labels: of each domain.
        hint: what to do instead.
    """
    present = np.concatenate([np.unique(y) for y in labels])
    if len(np.unique(present)) == len(present):
        raise UserError(
            "The estimate predicts each domain by the others: expected a class that occurs in two or more domains. "
            f"Found none. Add samples of the same classes from several domains{hint}."
        )


def prediction_interval(values: Sequence[float], *, floor: float = 0.0) -> tuple[float, float] | None:
    """Predict a 95 % interval for one more value: m ± t·s·√(1 + 1/k), clipped to [0, 1]. None for fewer than three.

    Args:
        values: k values with mean m and standard deviation s.
        floor: lower bound of s².

    Example:
        >>> low, high = prediction_interval([0.7, 0.8, 0.9])
        >>> round(low, 3), high
        (0.303, 1.0)
    """
    k = len(values)
    if k < 3:
        return None
    s = max(float(np.var(values, ddof=1)), floor) ** 0.5
    half = float(student.ppf(UPPER, k - 1)) * s * (1 + 1 / k) ** 0.5
    mean = float(np.mean(values))
    return max(0.0, mean - half), min(1.0, mean + half)


def count_domains(spread: float, width: float) -> int | None:
    """Count the domains from which on a 95 % prediction interval has a width, if they differ as much as now.

    Args:
        spread: standard deviation s of the values of domains.
        width: that is wanted.

    Returns None if no number is enough: the interval is never narrower than 2·1.96·s.

    Example:
        >>> count_domains(0.05, 0.4), count_domains(0.2, 0.4)
        (4, None)
    """
    k: int
    for k in (*range(3, 30), 50, 100):
        quantile = float(student.ppf(UPPER, k - 1))
        if 2 * quantile * spread * (1 + 1 / k) ** 0.5 <= width:
            return k
    return None


def _compute_counting_variance(held_out: Sequence[HeldOut], metric: Metric) -> float:
    """Compute the sampling variance of a metric on n samples; mean over domains.

    For accuracy a it is a(1 − a)/n; for a mean of recalls, the sum of their variances over the squared number of
    classes, which also approximates that of macro F1. a is (correct + 1)/(n + 2): three domains with 20 of 20 correct
    would otherwise give an interval of length 0.
    """
    return float(np.mean([_compute_variance(h, metric) for h in held_out]))


def _compute_variance(held_out: HeldOut, metric: Metric) -> float:
    classes, n = np.unique(held_out.y, return_counts=True)
    correct = held_out.y[held_out.logits.argmax(axis=1) == held_out.y]
    hits = np.array([(correct == c).sum() for c in classes])
    if metric == "accuracy":
        hits, n = np.array([hits.sum()]), np.array([n.sum()])
    a = (hits + 1) / (n + 2)
    return float((a * (1 - a) / n).sum() / len(n) ** 2)


def _find_known(held_out: Sequence[HeldOut], one: HeldOut) -> npt.NDArray[np.bool_]:
    """Find the samples of a domain whose class another domain has: its network was trained on that class."""
    return np.isin(one.y, np.concatenate([h.y for h in held_out if h is not one]))


def _fit_temperature(
    held_out: Sequence[HeldOut], known: Sequence[npt.NDArray[np.bool_]], *, without: HeldOut | None = None
) -> float:
    """Fit the temperature on the domains, except `without`: a domain must not calibrate itself.

    Samples of classes that their network was not trained on are left out.
    """
    used = [(h, mask) for h, mask in zip(held_out, known, strict=True) if h is not without and mask.any()]
    return fit_temperature([h.logits[mask] for h, mask in used], [h.y[mask] for h, mask in used])


def _judge(held_out: HeldOut, probabilities: Floats, known: npt.NDArray[np.bool_]) -> JudgedDomain:
    p = probabilities[known]
    return JudgedDomain(
        p.argmax(axis=1), p.max(axis=1), held_out.correct[known], held_out.novelty[known], held_out.noise
    )


def _describe_domain(judged: _Judged) -> UnseenDomain:
    held_out, probabilities = judged.held_out, judged.probabilities
    novel, trusted = find_novel(judged.rule, held_out.novelty), _find_trusted(judged)
    return UnseenDomain(
        domain=held_out.domain,
        metrics=metrics(held_out.y, held_out.logits.argmax(axis=1), probabilities, MOST_CLASSES),
        in_domain_accuracy=held_out.in_domain_accuracy,
        unknown=float(1 - judged.known.mean()),
        confidence=float(probabilities.max(axis=1).mean()),
        calibration_error=calibration_error(probabilities, held_out.y),
        novel=float(novel.mean()),
        novel_accuracy=_score(held_out, novel),
        trusted=float(trusted.mean()),
        trusted_accuracy=_score(held_out, trusted),
        predictions=summarize_predictions(probabilities, combine_parts(held_out.novelty, judged.rule.limits)),
        reference=_summarize_reference(judged),
    )


def _summarize_reference(judged: _Judged) -> PredictionSummary | None:
    """Summarize the predictions of the same network for samples of its source domains; None if there are none."""
    logits, novelty = judged.held_out.reference
    if not len(logits):
        return None
    probabilities = calibrate_logits(logits, judged.temperature)
    return summarize_predictions(probabilities, combine_parts(novelty, judged.rule.limits))


def _count_predicted(judged: Sequence[_Judged]) -> tuple[PredictedClass, ...]:
    guesses = np.concatenate([j.held_out.logits.argmax(axis=1) for j in judged])
    correct = np.concatenate([j.held_out.correct for j in judged])
    trusted = np.concatenate(list(map(_find_trusted, judged)))
    which = (guesses, guesses[trusted], guesses[trusted & correct])
    counts = (np.bincount(each, minlength=judged[0].held_out.logits.shape[1]).tolist() for each in which)
    return tuple(PredictedClass(*each) for each in zip(*counts, strict=True))


def _find_trusted(judged: _Judged) -> npt.NDArray[np.bool_]:
    p = judged.probabilities
    return find_trusted(judged.rule, p.argmax(axis=1), p.max(axis=1), judged.held_out.novelty)


def _score(held_out: HeldOut, chosen: npt.NDArray[np.bool_]) -> float | None:
    return float(held_out.correct[chosen].mean()) if chosen.any() else None


def _measure_level(level: float, judged: Sequence[JudgedDomain], rule: TrustRule) -> TrustLevel:
    trusted = [(j.confidence >= level) & ~find_novel(rule, j.novelty) for j in judged]
    coverage = float(np.mean([chosen.mean() for chosen in trusted]))
    # Not the mean of the domains' accuracies: one trusted sample of a domain would weigh as much as all of another.
    correct = float(np.mean([(chosen & j.correct).mean() for j, chosen in zip(judged, trusted, strict=True)]))
    return TrustLevel(level, coverage, correct / coverage if coverage else None)
