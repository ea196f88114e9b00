"""Tables of metrics on domains that a model has never seen."""

from __future__ import annotations

import numpy as np

from fgmix.records.metrics import metrics
from fgmix.results.unseen import confusion_table, metrics_table, pooled_confusion, recall_table, worst_domain

CLASSES = ("cat", "dog")
EYE = np.eye(2)
FOUND = {  # always cat; and all correct
    "north": metrics(np.array([0, 0, 0, 1]), np.zeros(4, np.int64), EYE[np.zeros(4, np.int64)]),
    "south": metrics(np.array([0, 1]), np.array([0, 1]), EYE),
}


def test_a_frequent_class_does_not_flatter() -> None:
    _, _, north, south = metrics_table(FOUND).splitlines()
    assert north == "| north | 4 | 75.0 % | 75.0 % | 50.0 % | 42.9 % | 0.500 |"
    assert south == "| south | 2 | 50.0 % | 100.0 % | 100.0 % | 100.0 % | 1.000 |"
    assert worst_domain(FOUND, "balanced_accuracy") == "north"


def test_recall_by_class_and_domain() -> None:
    head, _, *rows = recall_table(CLASSES, FOUND, str.upper).splitlines()
    assert head == "| Recall of class | NORTH | SOUTH |"
    assert rows == ["| CAT | 100.0 % | 100.0 % |", "| DOG | 0.0 % | 100.0 % |"]


def test_of_many_classes_the_worst_are_shown() -> None:
    y = np.arange(40)
    guesses = np.where(y < 3, 39, y)
    found = {"x": metrics(y, guesses, np.eye(40)[guesses])}
    rows = recall_table([f"c{i}" for i in y], found).splitlines()[2:]
    assert len(rows) == 32
    assert [row.split(" | ")[0] for row in rows[:3]] == ["| c0", "| c1", "| c2"]
    assert pooled_confusion(found) == []
    assert confusion_table([f"c{i}" for i in y], pooled_confusion(found)) == ""


def test_confusion_of_all_domains() -> None:
    assert pooled_confusion(FOUND) == [[4, 0], [1, 1]]
    assert confusion_table(CLASSES, pooled_confusion(FOUND)).splitlines()[-1] == "| dog | 1 | 1 |"
