"""What to expect of a domain that nobody has seen: every known one is held out in turn and predicted by the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import t as student
from torch import Tensor

from fgmix.algorithms import Algorithm
from fgmix.data._dataset import Indices
from fgmix.deploy.trust import Familiar, Floats, calibration_error, confidences, fit_familiar, fit_temperature
from fgmix.runs.opening import OpenedRun, Sample
from fgmix.runs.record import Model, RunRecord, Which, selected_weights

CODES = 2000  # codes of each domain that say what is familiar: more move the covariance little and take memory
LEVELS = (0.0, 0.5, 0.7, 0.9, 0.95)  # of confidence, at which coverage and accuracy are told


@dataclass(frozen=True)
class HeldOut:
    """Predictions for one domain by a network that has never seen it.

    Args:
        domain: its name.
        logits: (n, C) of all of its samples.
        novelty: of its codes, see `trust`.
        y: its labels.
        in_domain_accuracy: of the same network on held-out samples of the domains it knows.
    """

    domain: str
    logits: Floats
    novelty: Floats
    y: Indices
    in_domain_accuracy: float

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = self.logits.argmax(axis=1) == self.y
        return found


@dataclass(frozen=True)
class UnseenDomain:
    """What was measured on a domain while it was held out.

    Args:
        domain: its name.
        samples: how many it has.
        accuracy: on all of them.
        in_domain_accuracy: of the same network on the domains it knows: what one would have believed.
        unknown: share of samples of classes that no other domain has: a network trained on the others must fail.
        confidence: mean calibrated confidence; as high as the accuracy if the calibration is honest.
        calibration_error: expected calibration error, with a temperature fitted on the other domains.
        novel: share of samples that look novel.
        novel_accuracy: accuracy on those; None if there are none.
    """

    domain: str
    samples: int
    accuracy: float
    in_domain_accuracy: float
    unknown: float
    confidence: float
    calibration_error: float
    novel: float
    novel_accuracy: float | None


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
class Estimate:
    """What a new domain can be expected to bring.

    Args:
        domains: what was measured on each known one, held out.
        accuracy: mean over domains.
        interval: 95 % prediction interval for the accuracy on one more domain; None with fewer than three domains.
        temperature: fitted on all held-out domains.
        levels: coverage and accuracy by confidence.
    """

    domains: tuple[UnseenDomain, ...]
    accuracy: float
    interval: tuple[float, float] | None
    temperature: float
    levels: tuple[TrustLevel, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Estimate:
        """What `as_dict` gave, through JSON or not."""
        interval = content["interval"]
        return cls(
            domains=tuple(UnseenDomain(**domain) for domain in content["domains"]),
            accuracy=content["accuracy"],
            interval=None if interval is None else (interval[0], interval[1]),
            temperature=content["temperature"],
            levels=tuple(TrustLevel(**level) for level in content["levels"]),
        )


def estimate(held_out: Sequence[HeldOut], levels: Iterable[float] = LEVELS) -> Estimate:
    """Summarise the domains that were held out, at least two of them; `levels` are those of confidence."""
    probabilities = [confidences(h.logits, _temperature_without(held_out, h)) for h in held_out]
    domains = tuple(
        _unseen(h, p, known=np.concatenate([other.y for other in held_out if other is not h]))
        for h, p in zip(held_out, probabilities, strict=True)
    )
    accuracies = [domain.accuracy for domain in domains]
    return Estimate(
        domains=domains,
        accuracy=float(np.mean(accuracies)),
        interval=prediction_interval(accuracies, floor=_counting_variance(held_out)),
        temperature=fit_temperature([h.logits for h in held_out], [h.y for h in held_out]),
        levels=tuple(_level(level, held_out, probabilities) for level in levels),
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


def _counting_variance(held_out: Sequence[HeldOut]) -> float:
    """Variance that accuracies have from counting n samples alone, a(1 − a)/n; mean over domains.

    Three domains with 20 of 20 correct have s = 0, which says too much about the next: a is (correct + 1)/(n + 2).
    """
    n = np.array([len(h.y) for h in held_out])
    a = (np.array([h.correct.sum() for h in held_out]) + 1) / (n + 2)
    return float(np.mean(a * (1 - a) / n))


def _temperature_without(held_out: Sequence[HeldOut], one: HeldOut) -> float:
    """The temperature that the other domains give: a domain must not calibrate itself."""
    others = [h for h in held_out if h is not one]
    return fit_temperature([h.logits for h in others], [h.y for h in others])


def _unseen(held_out: HeldOut, probabilities: Floats, known: Indices) -> UnseenDomain:
    novel = held_out.novelty > 1
    return UnseenDomain(
        domain=held_out.domain,
        samples=len(held_out.y),
        accuracy=float(held_out.correct.mean()),
        in_domain_accuracy=held_out.in_domain_accuracy,
        unknown=float(1 - np.isin(held_out.y, known).mean()),
        confidence=float(probabilities.max(axis=1).mean()),
        calibration_error=calibration_error(probabilities, held_out.y),
        novel=float(novel.mean()),
        novel_accuracy=float(held_out.correct[novel].mean()) if novel.any() else None,
    )


def _level(level: float, held_out: Sequence[HeldOut], probabilities: Sequence[Floats]) -> TrustLevel:
    trusted = [(p.max(axis=1) >= level) & (h.novelty <= 1) for h, p in zip(held_out, probabilities, strict=True)]
    coverage = float(np.mean([chosen.mean() for chosen in trusted]))
    # Not the mean of the domains' accuracies: a single trusted sample of one would weigh as much as all of another.
    correct = float(np.mean([(chosen & h.correct).mean() for h, chosen in zip(held_out, trusted, strict=True)]))
    return TrustLevel(level, coverage, correct / coverage if coverage else None)


def selected(record: RunRecord) -> tuple[Which, Model]:
    """The weights that a run ends with: the averaged ones where there are any, at the step that validation selects."""
    model = record.models[-1]
    return selected_weights(model), model


def hold_out(run: OpenedRun) -> HeldOut:
    """Predict the domain that a finished run has held out."""
    which, model = selected(run.record)
    algorithm = run.algorithm(which, model)
    familiar = familiar_to(run, algorithm)
    (domain,) = run.test_domains
    parts = [run.sample([domain], part) for part in ("train", "holdout")]
    found = [_predict(algorithm, familiar, x) for part in parts for x in part.inputs()]
    return HeldOut(
        domain=domain,
        logits=np.concatenate([logits for logits, _ in found]),
        novelty=np.concatenate([novelty for _, novelty in found]),
        y=np.concatenate([part.y.numpy() for part in parts]),
        in_domain_accuracy=run.record.selected(model).validation(run.sources, model),
    )


def familiar_to(run: OpenedRun, algorithm: Algorithm) -> Familiar:
    """What the run's source domains look like to its network."""
    seen, new = (run.sample(run.sources, part, limit=CODES) for part in ("train", "holdout"))
    return fit_familiar(_codes(seen, algorithm), seen.y.numpy(), _codes(new, algorithm))


def _codes(sample: Sample, algorithm: Algorithm) -> Floats:
    codes: Floats = sample.codes(algorithm).cpu().double().numpy()
    return codes


@torch.no_grad()
def _predict(algorithm: Algorithm, familiar: Familiar, x: Tensor) -> tuple[Floats, Floats]:
    """Logits and novelty of a batch. Codes are not kept: 2,048 numbers of 170,000 images are gigabytes."""
    z = algorithm.featurizer(x.to(next(algorithm.parameters()).device)).float()
    return algorithm.classifier(z).cpu().double().numpy(), familiar.novelty(z.cpu().double().numpy())
