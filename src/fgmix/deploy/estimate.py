"""What to expect of a domain that nobody has seen: every known one is held out in turn and predicted by the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

from fgmix.data._dataset import Indices
from fgmix.deploy.calibration import Bin, calibration_error, confidences, fit_temperature, reliability
from fgmix.deploy.hold_out import HeldOut
from fgmix.deploy.terms import Terms
from fgmix.deploy.trust import Judged, TrustRule, choose_rule
from fgmix.errors import UserError
from fgmix.metrics import Counts, Floats, Metric, Metrics, metrics

LEVELS = (0.0, 0.5, 0.7, 0.9, 0.95)  # of confidence, at which coverage and accuracy are reported
MOST_CLASSES = 100  # of a confusion matrix


@dataclass(frozen=True)
class UnseenDomain:
    """What was measured on a domain while it was held out.

    Args:
        domain: its name.
        metrics: of the network that has never seen it, on all of its samples.
        in_domain_accuracy: of the same network on the domains it knows: what one would have believed.
        unknown: share of samples of classes that no other domain has: a network trained on the others must fail.
        confidence: mean calibrated confidence; as high as the accuracy if the calibration is honest.
        calibration_error: expected calibration error, with a temperature fitted on the other domains.
        novel: share of samples that look novel, by a limit that the other domains give.
        novel_accuracy: accuracy on those; None if there are none.
        trusted: share of samples that are trusted, by a rule that the other domains give.
        trusted_accuracy: accuracy on those; None if there are none.
    """

    domain: str
    metrics: Metrics
    in_domain_accuracy: float
    unknown: float
    confidence: float
    calibration_error: float
    novel: float
    novel_accuracy: float | None
    trusted: float
    trusted_accuracy: float | None

    @property
    def samples(self) -> int:
        """How many it has."""
        return self.metrics.samples

    @property
    def accuracy(self) -> float:
        """On all of them."""
        return self.metrics.accuracy

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> UnseenDomain:
        return cls(**{**content, "metrics": Metrics.from_dict(content["metrics"])})


@dataclass(frozen=True)
class TrustLevel:
    """Familiar samples of unseen domains that are predicted with at least this confidence.

    Args:
        confidence: the level.
        coverage: share of all samples, each domain weighing the same.
        accuracy: on those, with the same weights; None where there are none.
    """

    confidence: float
    coverage: float
    accuracy: float | None


@dataclass(frozen=True)
class PredictedClass:
    """Predictions of one class on unseen domains: a frequent class must not lend its accuracy to a rare one.

    Args:
        predicted: how many there are.
        trusted: how many of these are trusted, by rules that the other domains give.
        correct: how many of the trusted are correct.
    """

    predicted: int
    trusted: int
    correct: int

    @property
    def trusted_share(self) -> float | None:
        """Of the predictions; None where there are none."""
        return self.trusted / self.predicted if self.predicted else None

    @property
    def trusted_accuracy(self) -> float | None:
        """On the trusted ones; None where there are none."""
        return self.correct / self.trusted if self.trusted else None


@dataclass(frozen=True)
class Estimate:
    """What a new domain can be expected to bring.

    Args:
        domains: what was measured on each known one, held out.
        accuracy: mean over domains.
        metric: the metric that the user chose to be reported first.
        value: its mean over domains.
        interval: 95 % prediction interval for its value on one more domain; None with fewer than three domains.
        temperature: fitted on all held-out domains.
        trust: when a prediction is trusted, chosen on all held-out domains.
        levels: coverage and accuracy by confidence.
        reliability: accuracy by confidence, each domain with a temperature of the others.
        predicted: predictions by class, all domains together.
    """

    domains: tuple[UnseenDomain, ...]
    accuracy: float
    metric: Metric
    value: float
    interval: tuple[float, float] | None
    temperature: float
    trust: TrustRule
    levels: tuple[TrustLevel, ...]
    reliability: tuple[Bin, ...]
    predicted: tuple[PredictedClass, ...]

    @property
    def metrics(self) -> dict[str, Metrics]:
        """By domain."""
        return {domain.domain: domain.metrics for domain in self.domains}

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Estimate:
        """What `as_dict` gave, through JSON or not."""
        interval = content["interval"]
        rule: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in content["trust"].items()}
        return cls(
            domains=tuple(UnseenDomain.from_dict(domain) for domain in content["domains"]),
            accuracy=content["accuracy"],
            metric=content["metric"],
            value=content["value"],
            interval=None if interval is None else (interval[0], interval[1]),
            temperature=content["temperature"],
            trust=TrustRule(**rule),
            levels=tuple(TrustLevel(**level) for level in content["levels"]),
            reliability=tuple(Bin(*found) for found in content["reliability"]),
            predicted=tuple(PredictedClass(**found) for found in content["predicted"]),
        )


def estimate(
    held_out: Sequence[HeldOut],
    levels: Iterable[float] = LEVELS,
    *,
    metric: Metric = "accuracy",
    terms: Terms | None = None,
) -> Estimate:
    """Summarise the domains that were held out, at least two of which share a class.

    Args:
        held_out: the domains.
        levels: of confidence, at which coverage and accuracy are reported.
        metric: what is reported first.
        terms: accuracy that the trusted should reach, or their least confidence.
    """
    terms = terms or Terms()
    asked = held_out[0].logits.shape[1], terms.target_accuracy, terms.min_confidence
    known = [_known(held_out, h) for h in held_out]
    probabilities = [confidences(h.logits, _temperature(held_out, known, without=h)) for h in held_out]
    judged = [_judged(h, p, mask) for h, p, mask in zip(held_out, probabilities, known, strict=True)]
    shared = [j for j in judged if len(j.correct)]  # a domain may have only classes of its own
    rules = [choose_rule([j for j in shared if j is not own], *asked) for own in judged]
    domains = tuple(map(_unseen, held_out, probabilities, known, rules))
    values = [domain.metrics.value(metric) for domain in domains]
    trust = choose_rule(shared, *asked)
    return Estimate(
        domains=domains,
        accuracy=float(np.mean([domain.accuracy for domain in domains])),
        metric=metric,
        value=float(np.mean(values)),
        interval=prediction_interval(values, floor=_counting_variance(held_out, metric)),
        temperature=_temperature(held_out, known),
        trust=trust,
        levels=tuple(_level(level, shared, trust) for level in sorted({*levels, trust.min_confidence or 0.0})),
        reliability=reliability(probabilities, [h.y for h in held_out]),
        predicted=_predicted(held_out, probabilities, rules),
    )


def check_shared_classes(labels: Sequence[Indices], hint: str = "") -> None:
    """Refuse domains of which no two share a class: a network trained on the others must fail on each.

    Args:
        labels: of each domain.
        hint: what to do instead.
    """
    found = np.concatenate([np.unique(y) for y in labels])
    if len(np.unique(found)) == len(found):
        raise UserError(
            "The estimate predicts each domain by the others: expected a class that occurs in two or more domains. "
            f"Found none. Add samples of the same classes from several domains{hint}."
        )


def prediction_interval(
    values: Sequence[float], share: float = 0.95, *, floor: float = 0.0
) -> tuple[float, float] | None:
    """Where one more value of the same kind lies: m ± t·s·√(1 + 1/k), within [0, 1]. None for fewer than three.

    Args:
        values: k of them.
        share: how often it should hold.
        floor: what s² is at least.

    Example:
        >>> low, high = prediction_interval([0.7, 0.8, 0.9])
        >>> round(low, 3), high
        (0.303, 1.0)
    """
    k = len(values)
    if k < 3:
        return None
    s = max(float(np.var(values, ddof=1)), floor) ** 0.5
    half = float(student.ppf((1 + share) / 2, k - 1)) * s * (1 + 1 / k) ** 0.5
    mean = float(np.mean(values))
    return max(0.0, mean - half), min(1.0, mean + half)


def _counting_variance(held_out: Sequence[HeldOut], metric: Metric) -> float:
    """Variance that a metric has from counting n samples alone; mean over domains.

    Of accuracy a it is a(1 − a)/n, of a mean of recalls that of the recalls over the number of classes squared; for
    macro F1 the latter stands in. Three domains with 20 of 20 correct have s = 0, which says too much about the next:
    a is (correct + 1)/(n + 2).
    """
    return float(np.mean([_variance(h, metric) for h in held_out]))


def _variance(held_out: HeldOut, metric: Metric) -> float:
    counts = Counts.of(held_out.y, held_out.logits.argmax(axis=1), held_out.logits.shape[1])
    hits, n = counts.hits[counts.labelled > 0], counts.labelled[counts.labelled > 0]
    if metric == "accuracy":
        hits, n = np.array([hits.sum()]), np.array([n.sum()])
    a = (hits + 1) / (n + 2)
    return float((a * (1 - a) / n).sum() / len(n) ** 2)


def _known(held_out: Sequence[HeldOut], one: HeldOut) -> npt.NDArray[np.bool_]:
    """Which samples of a domain are of classes that other domains have, and so its network."""
    return np.isin(one.y, np.concatenate([h.y for h in held_out if h is not one]))


def _temperature(
    held_out: Sequence[HeldOut], known: Sequence[npt.NDArray[np.bool_]], *, without: HeldOut | None = None
) -> float:
    """The temperature that the domains give, without one of them: a domain must not calibrate itself.

    Samples of classes that their network has never seen say nothing about its confidence and are left out.
    """
    used = [(h, mask) for h, mask in zip(held_out, known, strict=True) if h is not without and mask.any()]
    return fit_temperature([h.logits[mask] for h, mask in used], [h.y[mask] for h, mask in used])


def _judged(held_out: HeldOut, probabilities: Floats, known: npt.NDArray[np.bool_]) -> Judged:
    p = probabilities[known]
    return Judged(p.argmax(axis=1), p.max(axis=1), held_out.correct[known], held_out.novelty[known], held_out.noise)


def _unseen(held_out: HeldOut, probabilities: Floats, known: npt.NDArray[np.bool_], rule: TrustRule) -> UnseenDomain:
    novel = rule.novel(held_out.novelty)
    trusted = _trusted(held_out, probabilities, rule)
    return UnseenDomain(
        domain=held_out.domain,
        metrics=metrics(held_out.y, held_out.logits.argmax(axis=1), probabilities, MOST_CLASSES),
        in_domain_accuracy=held_out.in_domain_accuracy,
        unknown=float(1 - known.mean()),
        confidence=float(probabilities.max(axis=1).mean()),
        calibration_error=calibration_error(probabilities, held_out.y),
        novel=float(novel.mean()),
        novel_accuracy=_accuracy_of(held_out, novel),
        trusted=float(trusted.mean()),
        trusted_accuracy=_accuracy_of(held_out, trusted),
    )


def _predicted(
    held_out: Sequence[HeldOut], probabilities: Sequence[Floats], rules: Sequence[TrustRule]
) -> tuple[PredictedClass, ...]:
    guesses = np.concatenate([h.logits.argmax(axis=1) for h in held_out])
    correct = np.concatenate([h.correct for h in held_out])
    trusted = np.concatenate(list(map(_trusted, held_out, probabilities, rules)))
    which = (guesses, guesses[trusted], guesses[trusted & correct])
    counts = (np.bincount(found, minlength=held_out[0].logits.shape[1]).tolist() for found in which)
    return tuple(PredictedClass(*each) for each in zip(*counts, strict=True))


def _trusted(held_out: HeldOut, probabilities: Floats, rule: TrustRule) -> npt.NDArray[np.bool_]:
    return rule.trusted(probabilities.argmax(axis=1), probabilities.max(axis=1), held_out.novelty)


def _accuracy_of(held_out: HeldOut, chosen: npt.NDArray[np.bool_]) -> float | None:
    return float(held_out.correct[chosen].mean()) if chosen.any() else None


def _level(level: float, judged: Sequence[Judged], rule: TrustRule) -> TrustLevel:
    trusted = [(j.confidence >= level) & ~rule.novel(j.novelty) for j in judged]
    coverage = float(np.mean([chosen.mean() for chosen in trusted]))
    # Not the mean of the domains' accuracies: a single trusted sample of one would weigh as much as all of another.
    correct = float(np.mean([(chosen & j.correct).mean() for j, chosen in zip(judged, trusted, strict=True)]))
    return TrustLevel(level, coverage, correct / coverage if coverage else None)
