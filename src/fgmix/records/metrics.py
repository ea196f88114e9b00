"""Metrics of a classifier on one domain, including some that a frequent class does not dominate.

With n_c samples of class c, p_c predictions of it and h_c hits (samples of c that are predicted as c):

    accuracy             Σ_c h_c / Σ_c n_c
    recall of c          h_c / n_c
    balanced accuracy    mean recall over the classes that occur
    macro F1             mean of 2 h_c / (n_c + p_c) over the classes that occur or are predicted
    AUROC                mean over classes c of P(score of c is higher for a sample of c than for another), ties half
    calibration error    Σ_b |Σ_{i in bin b} (confidence_i − correct_i)| / n, in bins of equal width by confidence

Except for the last (Guo et al., 2017, https://arxiv.org/abs/1706.04599), these are scikit-learn's definitions, against
which they are tested; classes that do not occur have no recall and no AUROC. Needs neither torch nor scikit-learn: a
laptop can rebuild every table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import asdict

from fgmix.records.evaluations import Metrics, Rates

MOST_CLASSES = 32  # of a confusion matrix: with more, records are large and figures unreadable
BINS = 15  # of equal width, of the calibration error
UNBALANCED = 3  # size of the largest class over the smallest, from which on accuracy is misleading

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def rates(labelled: Array, predicted: Array, hits: Array) -> Rates:
    """Compute rates from the numbers n_c, p_c and h_c of each class, (C,).

    Example:
        >>> found = rates(np.array([3, 1]), np.array([4, 0]), np.array([3, 0]))
        >>> found.accuracy, found.balanced_accuracy, found.majority
        (0.75, 0.5, 0.75)
    """
    n, occurs, both = labelled.sum(), labelled > 0, labelled + predicted
    recall = hits[occurs] / labelled[occurs]
    each = iter(recall.tolist())
    return Rates(
        samples=int(n),
        majority=float(labelled.max() / n),
        accuracy=float(hits.sum() / n),
        balanced_accuracy=float(recall.mean()),
        macro_f1=float((2 * hits[both > 0] / both[both > 0]).mean()),
        recall=tuple(next(each) if known else None for known in occurs),
    )


def metrics(y: Ints, guesses: Ints, scores: Floats, most_classes: int = MOST_CLASSES) -> Metrics:
    """Compute the metrics of n predictions.

    Args:
        y: labels (n,).
        guesses: predicted classes (n,).
        scores: probability of each class, (m, C), of the first m ≤ n samples.
        most_classes: the confusion matrix is left empty for more.

    Example:
        >>> result = metrics(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]]))
        >>> result.recall, result.confusion, result.auroc
        ((0.5, 1.0), ((1, 1), (0, 1)), 1.0)
    """
    classes, scored = scores.shape[1], y[: len(scores)]
    counts = (np.bincount(each, minlength=classes) for each in (y, guesses, y[y == guesses]))
    cells = np.bincount(y * classes + guesses, minlength=classes**2) if classes <= most_classes else np.zeros(0, int)
    areas = [auroc(scores[:, c], scored == c) for c in np.unique(scored)]
    known = [area for area in areas if area is not None]
    return Metrics(
        **asdict(rates(*counts)),
        auroc=float(np.mean(known)) if known else None,
        confusion=tuple(map(tuple, cells.reshape(-1, classes).tolist())),
        calibration_error=calibration_error(scores, scored),
    )


def auroc(scores: Array, positive: npt.NDArray[np.bool_]) -> float | None:
    """Compute P(the score of a positive sample is higher than that of a negative one), ties half; None without both.

    Args:
        scores: (n,).
        positive: which samples are positive, (n,).

    Example:
        >>> auroc(np.array([0.1, 0.4, 0.4, 0.9]), np.array([False, False, True, True]))
        0.875
    """
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if not ones or not zeros:
        return None
    _, which, counts = np.unique(scores, return_inverse=True, return_counts=True)
    rank = np.cumsum(counts) - (counts - 1) / 2  # mean rank of equal scores, from 1
    return float((rank[which][positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def calibration_error(probabilities: Floats, y: Ints) -> float:
    """Compute the expected calibration error: the gap between confidence and accuracy in bins, mean over samples.

    Args:
        probabilities: (n, C).
        y: labels.

    Example:
        >>> calibration_error(np.array([[0.8, 0.2]] * 4), np.array([0, 0, 0, 1]))  # confidence 0.80, accuracy 0.75
        0.05
    """
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == y
    which = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs((confidence[which == b] - correct[which == b]).sum()) for b in range(BINS)]
    return round(float(np.sum(gaps)) / len(y), 12)


def pooled_confusion(domains: Mapping[str, Metrics]) -> list[list[int]]:
    """Add up the confusion matrices of all domains; empty if there is none."""
    matrices = [np.array(m.confusion) for m in domains.values() if m.confusion]
    total: list[list[int]] = np.sum(matrices, axis=0).tolist() if matrices else []
    return total


def name_part(domain: str, name: str) -> str:
    """Name the part of a test domain whose images are in a list; records have its metrics beside those of the domain.

    >>> name_part("sketch", "DomainBed-OOP")
    'sketch, DomainBed-OOP'
    """
    return f"{domain}, {name}"


def is_unbalanced(counts: Sequence[int] | Array) -> bool:
    """Say whether the classes that occur are so unequal in size that accuracy is misleading.

    >>> is_unbalanced([95, 5]), is_unbalanced([60, 40, 0])
    (True, False)
    """
    n = np.asarray(counts)
    return bool(n.max() >= UNBALANCED * n[n > 0].min())
