"""Watch a model in use: `fgmix monitor MODEL BATCH`, for unlabelled samples.

    drift       how confidence, novelty and predicted classes of the batch differ from those of new samples of the
                training domains: Kolmogorov-Smirnov distance, or total variation of classes, each with a p-value
    novelty     share of samples that are flagged as novel
    accuracy    estimated by the mean calibrated confidence; how far that was off is known from the held-out domains

A new site differs from the training domains as a rule, so that a test alone says little. The distances of the held-out
domains, each predicted by a model trained on the others, tell how much: a batch that is further away is unlike anything
that the estimate on the model's card rests on.

Rabanser et al., "Failing Loudly: An Empirical Study of Methods for Detecting Dataset Shift", 2019,
https://arxiv.org/abs/1810.11953 (tests on the outputs of the classifier); Guillory et al., "Predicting with Confidence
on Unseen Distributions", 2021, https://arxiv.org/abs/2107.03315 (mean confidence).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import chi2_contingency, ks_2samp, kstwobign

from fgmix.deploy.model import Model
from fgmix.deploy.predict import predict_paths
from fgmix.deploy.summary import summarize_labels
from fgmix.errors import UserError
from fgmix.records.model import Estimate, PredictionSummary
from fgmix.results.other_metrics import percent
from fgmix.results.rounding import p_equation

SURE = 0.01  # p-value, corrected for the number of tests, below which a batch differs


@dataclass(frozen=True)
class Drift:
    """How the distribution of one quantity differs between a batch and a reference."""

    name: str
    distance: float  # between 0 and 1
    p_value: float


@dataclass(frozen=True)
class Report:
    """What `fgmix monitor` finds."""

    samples: int
    failed: int  # that cannot be predicted
    drifts: tuple[Drift, ...]  # from new samples of the training domains, or from an earlier batch
    held_out: dict[str, tuple[float, float]]  # by quantity, smallest and largest distance of a held-out domain
    novel: float  # share
    accuracy: float | None  # estimated; None for a model without an estimate
    errors: tuple[float, ...]  # of that estimate on each held-out domain

    @property
    def is_far(self) -> bool:
        """Whether a distance is significant, and larger than that of every held-out domain."""
        limit = SURE / max(len(self.drifts), 1)
        return any(d.p_value < limit and d.distance > self.held_out.get(d.name, (0.0, 0.0))[1] for d in self.drifts)

    def lines(self) -> list[str]:
        """Write the report as lines of text."""
        failed = f", {self.failed} more cannot be predicted" if self.failed else ""
        lines = [f"Samples: {self.samples}{failed}.", *map(self._describe, self.drifts)]
        lines.append(f"Flagged as novel: {percent(self.novel)}.")
        if self.accuracy is not None:
            mean, worst = float(np.mean(self.errors)), max(self.errors)
            lines.append(
                f"Estimated accuracy, the mean confidence: {percent(self.accuracy)}. On held-out domains it was off by "
                f"{100 * mean:.1f} points on average, {100 * worst:.1f} at most."
            )
        limit = " by more than any held-out domain did" if self.held_out else ""
        return [*lines, f"The batch differs from the reference{limit}: label some samples."] if self.is_far else lines

    def _describe(self, drift: Drift) -> str:
        seen = self.held_out.get(drift.name)
        scale = f"; held-out domains: {seen[0]:.2f} to {seen[1]:.2f}" if seen else ""
        return f"Drift of {drift.name}: {drift.distance:.2f} ({p_equation(drift.p_value)}{scale})."


def monitor(model: Model, paths: Sequence[Path], baseline: Sequence[Path] = (), *, progress: bool = True) -> Report:
    """Compare a batch of unlabelled samples with the training domains, or with an earlier batch.

    Args:
        model: in use.
        paths: the batch, as for `fgmix predict`.
        baseline: an earlier batch of the same site, to compare with instead.
        progress: show a progress bar.
    """
    batch, failed = _predict(model, paths, progress)
    info = model.info
    reference = _predict(model, baseline, progress)[0] if baseline else info.familiar
    if reference is None:
        raise UserError("Expected a model that stores how its predictions are distributed. Found none: fit it again.")
    estimate = None if baseline else info.estimate
    if estimate and not all(domain.reference for domain in estimate.domains):
        raise UserError(
            "Expected a model that stores how far its held-out domains were. Found an older one. Fit it again, or pass "
            "--baseline."
        )
    return Report(
        samples=batch.samples,
        failed=failed,
        drifts=tuple(compare_summaries(reference, batch)),
        held_out=_measure_held_out(estimate) if estimate else {},
        novel=batch.novel,
        accuracy=batch.mean_confidence if info.estimate else None,
        errors=tuple(abs(d.confidence - d.accuracy) for d in info.estimate.domains) if info.estimate else (),
    )


def compare_summaries(reference: PredictionSummary, batch: PredictionSummary) -> Iterable[Drift]:
    """Yield the drift of each quantity; novelty only if the model uses it."""
    for name, ours, theirs in (
        ("confidence", reference.confidence, batch.confidence),
        ("novelty", reference.novelty, batch.novelty),
    ):
        if ours[0] < ours[-1] or theirs[0] < theirs[-1]:
            distance = measure_distance(ours, theirs)
            pooled = reference.samples * batch.samples / (reference.samples + batch.samples)
            yield Drift(name, distance, float(kstwobign.sf(distance * pooled**0.5)))
    counts = np.array([reference.classes, batch.classes])
    shares = counts / counts.sum(axis=1, keepdims=True)
    counts = counts[:, counts.sum(axis=0) > 0]
    p_value = float(chi2_contingency(counts).pvalue) if counts.shape[1] > 1 else 1.0
    yield Drift("predicted classes", float(np.abs(shares[0] - shares[1]).sum() / 2), p_value)


def measure_distance(a: Sequence[float], b: Sequence[float]) -> float:
    """Compute the Kolmogorov-Smirnov distance of two distributions from their quantiles.

    >>> measure_distance([0.0, 1.0, 2.0], [0.0, 1.0, 2.0]), measure_distance([0.0, 1.0], [2.0, 3.0])
    (0.0, 1.0)
    """
    return float(ks_2samp(a, b, method="asymp").statistic)


def _measure_held_out(estimate: Estimate) -> dict[str, tuple[float, float]]:
    """Measure, by quantity, the smallest and the largest distance of a held-out domain from the source domains.

    Both are predicted by the same network: each has a novelty of its own scale.
    """
    distances: dict[str, list[float]] = {}
    for domain in estimate.domains:
        if domain.reference and domain.predictions:
            for drift in compare_summaries(domain.reference, domain.predictions):
                distances.setdefault(drift.name, []).append(drift.distance)
    return {name: (min(values), max(values)) for name, values in distances.items()}


def _predict(model: Model, paths: Sequence[Path], progress: bool) -> tuple[PredictionSummary, int]:
    """Predict a batch; return a summary and the number of samples that cannot be predicted."""
    parts = [[path] for path in paths] if model.info.columns else [paths]  # of tables, rows need not be told apart
    rows = [row for part in parts for row in predict_paths(model, part, progress=progress)]
    sound = [row for row in rows if not row["error"]]
    if not sound:
        first = f" ({next(iter(rows[0].values()))}: {rows[0]['error']})" if rows else ""
        raise UserError(f"Expected samples that can be predicted. Found none in {len(rows)}{first}.")
    confidence, novelty = (np.array([float(row[name]) for row in sound]) for name in ("confidence", "novelty"))
    classes = model.info.classes
    labels = np.array([classes.index(row["label"]) for row in sound])
    return summarize_labels(labels, confidence, novelty, len(classes)), len(rows) - len(sound)
