"""When to distrust a prediction: where its confidence is too low for its class, or its sample too novel.

Thresholds are chosen on domains that were held out, so that the trusted predictions reach a target accuracy there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fgmix.data._dataset import Indices
from fgmix.metrics import Floats, auroc

FAMILIAR = 0.95, 0.99  # shares of the correct predictions on unseen domains that the two parts of novelty let pass
INFORMATIVE = 0.6  # AUROC from which novelty counts: 0.5 is a coin
NEVER = 2.0  # a confidence that no prediction has
FEWEST = 20  # trusted predictions of held-out domains from which their accuracy means something


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
