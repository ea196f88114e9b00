"""What to expect of a domain that nobody has seen: every known one is held out in turn and predicted by the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import t as student

from fgmix.algorithms import Algorithm
from fgmix.analysis.runs import OpenedRun, Sample, Which
from fgmix.data._dataset import Indices
from fgmix.deploy.trust import Familiar, Floats, calibration_error, confidences, fit_familiar, fit_temperature
from fgmix.records import Model, RunRecord

CODES = 2000  # codes of each domain that say what is familiar: more move the covariance little and take memory
LEVELS = (0.0, 0.5, 0.7, 0.9, 0.95)  # of confidence, at which coverage and accuracy are told


@dataclass(frozen=True)
class HeldOut:
    """Predictions for one domain by a network that has never seen it.

    Args:
        domain: its name.
        logits: (n, C) of all of its instances.
        novelty: of its codes, see `trust`.
        y: its labels.
        known_accuracy: of the same network on held-out instances of the domains it knows.
    """

    domain: str
    logits: Floats
    novelty: Floats
    y: Indices
    known_accuracy: float

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = self.logits.argmax(axis=1) == self.y
        return found


@dataclass(frozen=True)
class UnseenDomain:
    """What was measured on a domain while it was held out.

    Args:
        domain: its name.
        instances: how many it has.
        accuracy: on all of them.
        known_accuracy: of the same network on the domains it knows: what one would have believed.
        confidence: mean calibrated confidence; as high as the accuracy if the calibration is honest.
        calibration_error: expected calibration error, with a temperature fitted on the other domains.
        novel: share of instances that look novel.
        novel_accuracy: accuracy on those; None if there are none.
    """

    domain: str
    instances: int
    accuracy: float
    known_accuracy: float
    confidence: float
    calibration_error: float
    novel: float
    novel_accuracy: float | None


@dataclass(frozen=True)
class TrustLevel:
    """Familiar instances of unseen domains that are predicted with at least this confidence; means over domains.

    Args:
        confidence: the level.
        coverage: share of all instances.
        accuracy: on those; None where no domain has any.
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


def estimate(held_out: Sequence[HeldOut]) -> Estimate:
    """Summarise the domains that were held out, at least two of them."""
    probabilities = [confidences(h.logits, _temperature_without(held_out, h)) for h in held_out]
    domains = tuple(_unseen(h, p) for h, p in zip(held_out, probabilities, strict=True))
    accuracies = [domain.accuracy for domain in domains]
    return Estimate(
        domains=domains,
        accuracy=float(np.mean(accuracies)),
        interval=prediction_interval(accuracies),
        temperature=fit_temperature([h.logits for h in held_out], [h.y for h in held_out]),
        levels=tuple(_level(level, held_out, probabilities) for level in LEVELS),
    )


def prediction_interval(values: Sequence[float], share: float = 0.95) -> tuple[float, float] | None:
    """Where one more value of the same kind lies: m ± t·s·√(1 + 1/k), within [0, 1]. None for fewer than three.

    >>> low, high = prediction_interval([0.7, 0.8, 0.9])
    >>> round(low, 3), high
    (0.303, 1.0)
    """
    k = len(values)
    if k < 3:
        return None
    half = float(student.ppf((1 + share) / 2, k - 1)) * float(np.std(values, ddof=1)) * (1 + 1 / k) ** 0.5
    mean = float(np.mean(values))
    return max(0.0, mean - half), min(1.0, mean + half)


def _temperature_without(held_out: Sequence[HeldOut], one: HeldOut) -> float:
    """The temperature that the other domains give: a domain must not calibrate itself."""
    others = [h for h in held_out if h is not one]
    return fit_temperature([h.logits for h in others], [h.y for h in others])


def _unseen(held_out: HeldOut, probabilities: Floats) -> UnseenDomain:
    novel = held_out.novelty > 1
    return UnseenDomain(
        domain=held_out.domain,
        instances=len(held_out.y),
        accuracy=float(held_out.right.mean()),
        known_accuracy=held_out.known_accuracy,
        confidence=float(probabilities.max(axis=1).mean()),
        calibration_error=calibration_error(probabilities, held_out.y),
        novel=float(novel.mean()),
        novel_accuracy=float(held_out.right[novel].mean()) if novel.any() else None,
    )


def _level(level: float, held_out: Sequence[HeldOut], probabilities: Sequence[Floats]) -> TrustLevel:
    trusted = [(p.max(axis=1) >= level) & (h.novelty <= 1) for h, p in zip(held_out, probabilities, strict=True)]
    accuracies = [float(h.right[chosen].mean()) for h, chosen in zip(held_out, trusted, strict=True) if chosen.any()]
    coverage = float(np.mean([chosen.mean() for chosen in trusted]))
    return TrustLevel(level, coverage, float(np.mean(accuracies)) if accuracies else None)


def selected(record: RunRecord) -> tuple[Which, Model]:
    """The weights that a run ends with: the averaged ones where there are any, at the step that validation selects."""
    model = record.models[-1]
    return ("last" if model == "swad" else "best"), model


def hold_out(run: OpenedRun) -> HeldOut:
    """Predict the domain that a finished run has held out."""
    algorithm = run.algorithm(*selected(run.record))
    (domain,) = run.test_domains
    parts = [run.sample([domain], part) for part in ("train", "holdout")]
    z, y = _codes(parts, algorithm)
    _, model = selected(run.record)
    return HeldOut(
        domain=domain,
        logits=_logits(algorithm, z),
        novelty=familiar_to(run, algorithm).novelty(z),
        y=y,
        known_accuracy=run.record.best(model).validation(run.sources, model),
    )


def familiar_to(run: OpenedRun, algorithm: Algorithm) -> Familiar:
    """What the run's source domains look like to its network."""
    z, y = _codes([run.sample(run.sources, "train", limit=CODES)], algorithm)
    known, _ = _codes([run.sample(run.sources, "holdout", limit=CODES)], algorithm)
    return fit_familiar(z, y, known)


def _codes(samples: Sequence[Sample], algorithm: Algorithm) -> tuple[Floats, Indices]:
    z = np.concatenate([sample.codes(algorithm).cpu().double().numpy() for sample in samples])
    return z, np.concatenate([sample.y.numpy() for sample in samples])


def _logits(algorithm: Algorithm, z: Floats) -> Floats:
    with torch.no_grad():
        device = next(algorithm.parameters()).device
        logits: Floats = algorithm.classifier(torch.from_numpy(z).float().to(device)).double().cpu().numpy()
    return logits
