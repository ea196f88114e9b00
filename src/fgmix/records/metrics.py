"""Metrics of a classifier on one domain, including some that a frequent class does not dominate.

With n_c samples of class c, p_c predictions of it and h_c hits (samples of c that are predicted as c):

    accuracy             Σ_c h_c / Σ_c n_c
    recall of c          h_c / n_c
    balanced accuracy    mean recall over the classes that occur
    macro F1             mean of 2 h_c / (n_c + p_c) over the classes that occur or are predicted
    AUROC                mean over classes c of P(score of c is higher for a sample of c than for another), ties half

These are scikit-learn's definitions, against which they are tested; classes that do not occur have no recall and no
AUROC. Needs neither torch nor scikit-learn: a laptop can rebuild every table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

Metric = Literal["accuracy", "balanced_accuracy", "macro_f1"]
NAMES: dict[Metric, str] = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
}
MOST_CLASSES = 32  # of a confusion matrix: with more, records are large and figures unreadable
UNBALANCED = 3  # size of the largest class over the smallest, from which on accuracy is misleading

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Counts:
    """Numbers of samples by class.

    Example:
        >>> counts = Counts.of(np.array([0, 0, 0, 1]), np.array([0, 0, 0, 0]), 2)
        >>> counts.accuracy, counts.balanced_accuracy, counts.majority
        (0.75, 0.5, 0.75)
    """

    labelled: Array  # n_c, (C,)
    predicted: Array  # p_c, (C,)
    hits: Array  # h_c, (C,)

    @classmethod
    def of(cls, y: Ints, guesses: Ints, classes: int) -> Counts:
        """Count labels and predictions (n,)."""
        return cls(*(np.bincount(each, minlength=classes) for each in (y, guesses, y[y == guesses])))

    @property
    def accuracy(self) -> float:
        return float(self.hits.sum() / self.labelled.sum())

    @property
    def majority(self) -> float:
        """The most frequent class's share: the accuracy of always predicting it."""
        return float(self.labelled.max() / self.labelled.sum())

    @property
    def recall(self) -> tuple[float | None, ...]:
        """Of each class; None where it does not occur."""
        return tuple(float(h / n) if n else None for h, n in zip(self.hits, self.labelled, strict=True))

    @property
    def balanced_accuracy(self) -> float:
        occurs = self.labelled > 0
        return float((self.hits[occurs] / self.labelled[occurs]).mean())

    @property
    def macro_f1(self) -> float:
        both = self.labelled + self.predicted
        return float((2 * self.hits[both > 0] / both[both > 0]).mean())

    def value(self, metric: Metric) -> float:
        """Return the metric of that name."""
        value: float = getattr(self, metric)
        return value


class Metrics(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Metrics of a classifier on a domain, as `metrics` computes them."""

    samples: int  # how many there are
    majority: float  # the most frequent class's share of them
    accuracy: float  # share of correct predictions
    balanced_accuracy: float  # mean recall over the classes that occur
    macro_f1: float  # mean F1 score over the classes that occur or are predicted
    auroc: float | None  # one class against the rest, mean over the classes; None if only one occurs
    recall: tuple[float | None, ...]  # of each class; None where it does not occur
    # Samples by class (row) and prediction (column); empty for more than `most_classes` classes.
    confusion: tuple[tuple[int, ...], ...]

    def value(self, metric: Metric) -> float:
        """Return the metric of that name."""
        value: float = getattr(self, metric)
        return value


def metrics(y: Ints, guesses: Ints, scores: Floats, most_classes: int = MOST_CLASSES) -> Metrics:
    """Compute the metrics of n predictions.

    Args:
        y: labels (n,).
        guesses: predicted classes (n,).
        scores: of each class, higher for likelier ones; (m, C), of the first m ≤ n samples.
        most_classes: the confusion matrix is left empty for more.

    Example:
        >>> result = metrics(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]]))
        >>> result.recall, result.confusion, result.auroc
        ((0.5, 1.0), ((1, 1), (0, 1)), 1.0)
    """
    classes = scores.shape[1]
    counts = Counts.of(y, guesses, classes)
    return Metrics(
        samples=len(y),
        majority=counts.majority,
        accuracy=counts.accuracy,
        balanced_accuracy=counts.balanced_accuracy,
        macro_f1=counts.macro_f1,
        auroc=mean_auroc(scores, y[: len(scores)]),
        recall=counts.recall,
        confusion=confusion_matrix(y, guesses, classes) if classes <= most_classes else (),
    )


def confusion_matrix(y: Ints, guesses: Ints, classes: int) -> tuple[tuple[int, ...], ...]:
    """Count samples by class (row) and prediction (column)."""
    cells = np.bincount(y * classes + guesses, minlength=classes**2).reshape(classes, classes)
    return tuple(tuple(row) for row in cells.tolist())


def mean_auroc(scores: Floats, y: Ints) -> float | None:
    """Average the AUROC of each class that occurs against the rest; None if fewer than two occur."""
    values = [auroc(scores[:, c], y == c) for c in np.unique(y)]
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


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


def is_unbalanced(counts: Sequence[int] | Array) -> bool:
    """Say whether the classes that occur are so unequal in size that accuracy is misleading.

    >>> is_unbalanced([95, 5]), is_unbalanced([60, 40, 0])
    (True, False)
    """
    n = np.asarray(counts)
    return bool(n.max() >= UNBALANCED * n[n > 0].min())
