"""Every metric against scikit-learn's."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest
from sklearn import metrics as theirs

from fgmix.records.evaluations import Metrics
from fgmix.records.metrics import auroc, calibration_error, is_unbalanced, metrics, rates
from fgmix.records.schema import to_plain


def predictions(n: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels of unlike frequency, and scores of a mediocre classifier with many ties."""
    rng = np.random.default_rng(seed)
    y = np.minimum(rng.geometric(0.4, n) - 1, classes - 1)
    y[:classes] = np.arange(classes)
    scores = rng.normal(size=(n, classes)).round(1) + 1.5 * np.eye(classes)[y]
    return y, scores


@pytest.mark.parametrize(("n", "classes"), [(40, 2), (300, 5), (2000, 12)])
def test_all_are_scikit_learns(n: int, classes: int) -> None:
    y, scores = predictions(n, classes, seed=classes)
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    guesses = scores.argmax(1)
    found = metrics(y, guesses, p)
    assert found.samples == n
    assert found.accuracy == pytest.approx(theirs.accuracy_score(y, guesses))
    assert found.balanced_accuracy == pytest.approx(theirs.balanced_accuracy_score(y, guesses))
    assert found.macro_f1 == pytest.approx(theirs.f1_score(y, guesses, average="macro"))
    assert found.recall == pytest.approx(theirs.recall_score(y, guesses, average=None))
    assert np.array_equal(found.confusion, theirs.confusion_matrix(y, guesses))
    by_class = theirs.roc_auc_score(np.eye(classes)[y], p, average="macro")
    assert found.auroc == pytest.approx(by_class)
    assert found.majority == np.bincount(y).max() / n
    hits = np.bincount(y[y == guesses], minlength=classes)
    counted = rates(np.bincount(y), np.bincount(guesses, minlength=classes), hits)
    for metric in ("accuracy", "balanced_accuracy", "macro_f1"):
        assert counted.value(metric) == found.value(metric)


def test_classes_that_do_not_occur() -> None:
    y, guesses = np.array([0, 0, 2, 2]), np.array([0, 3, 2, 2])
    found = metrics(y, guesses, np.eye(5)[guesses])
    assert found.recall == (0.5, None, 1.0, None, None)
    assert found.balanced_accuracy == 0.75
    assert found.macro_f1 == pytest.approx(theirs.f1_score(y, guesses, average="macro"))
    assert metrics(np.zeros(3, np.int64), np.zeros(3, np.int64), np.ones((3, 2))).auroc is None


def test_many_classes_have_no_matrix_and_few_scores_suffice() -> None:
    y, scores = predictions(400, 40, seed=0)
    found = metrics(y, scores.argmax(1), scores[:300])
    assert found.confusion == ()
    assert len(found.recall) == 40
    assert found.samples == 400
    assert found.auroc == metrics(y[:300], scores[:300].argmax(1), scores[:300]).auroc


def test_calibration_error_by_hand() -> None:
    """Two bins are met: 0.95 confident and half right; 0.55 confident and always right."""
    p = np.array([[0.95, 0.05], [0.95, 0.05], [0.55, 0.45], [0.45, 0.55]])
    y = np.array([0, 1, 0, 1])
    assert calibration_error(p, y) == pytest.approx((2 * 0.45 + 2 * 0.45) / 4)
    assert metrics(y, p.argmax(1), p).calibration_error == calibration_error(p, y)


def test_older_metrics_are_read_and_written_without_a_calibration_error() -> None:
    plain = msgspec.to_builtins(metrics(np.array([0, 1]), np.array([0, 1]), np.eye(2)))
    assert plain.pop("calibration_error") == 0
    old = msgspec.convert(plain, Metrics)
    assert old.calibration_error is None
    assert msgspec.to_builtins(old) == plain


def test_survives_json() -> None:
    y, scores = predictions(30, 3, seed=1)
    found = metrics(y, scores.argmax(1), scores)
    assert msgspec.convert(json.loads(json.dumps(to_plain(found))), Metrics) == found


def test_auroc_by_counting_pairs() -> None:
    rng = np.random.default_rng(0)
    scores, positive = rng.integers(0, 6, 50), rng.random(50) < 0.3
    pairs = [(a > b) + (a == b) / 2 for a in scores[positive] for b in scores[~positive]]
    assert auroc(scores, positive) == pytest.approx(np.mean(pairs))
    assert auroc(scores, np.ones(50, dtype=bool)) is None


def test_when_classes_are_unbalanced() -> None:
    assert not is_unbalanced([100, 40])
    assert is_unbalanced([120, 40, 60])
    assert not is_unbalanced([10, 0])  # one class alone is another mistake
