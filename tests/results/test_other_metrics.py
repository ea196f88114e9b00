"""Metrics besides accuracy, in the tables of a report, of a run and of a card."""

from __future__ import annotations

import numpy as np
import pytest

from copying import replace
from fgmix.records.metrics import metrics, pooled_confusion
from fgmix.results.formats import markdown
from fgmix.results.other_metrics import (
    metrics_table,
    metrics_tables,
    recall_table,
    worst_domain,
)
from fgmix.results.selection import select
from results.made import finished

Y = np.array([0, 0, 0, 1])
ALWAYS, ALL = (metrics(Y, guesses, np.eye(2)[guesses]) for guesses in (np.zeros(4, int), Y))


def test_a_row_for_each_method_and_model_that_kept_them() -> None:
    records = [
        replace(finished("a", 0.75, domains="a b"), unseen={"raw": {"a": ALWAYS}}),
        replace(finished("b", 1.0, domains="a b"), unseen={"raw": {"b": ALL}}),
        finished("a", 0.5, domains="a b", algorithm="coral"),  # made by an older version
    ]
    (table,) = metrics_tables(select(records))
    (row,) = table.rows
    values = [entry.value for entry in row.entries]
    assert values == pytest.approx([87.5, 75, 100 * np.mean([3 / 7, 1]), 75, 12.5, 50, 75])
    assert table.columns[4] == "Calibration error"
    assert row.entries[-1].shown == "a 75.0"
    assert "| ERM | 87.5 | 75.0 |" in markdown(table)
    assert "Calibration error" in table.caption
    assert "is correct for 75.0 % of the samples" in table.caption
    older = {"raw": {"a": replace(ALWAYS, calibration_error=None)}}
    (table,) = metrics_tables(select([replace(records[0], unseen=older)]))
    assert "Calibration error" not in (*table.columns, table.caption)


def test_recalls_of_few_classes() -> None:
    """In a every sample is taken for x: recalls 1 and 0; in b all are right, and a class that nobody has is blank."""
    records = [
        replace(finished("a", 0.75, domains="a b"), unseen={"raw": {"a": ALWAYS}}, classes=("x", "y")),
        replace(finished("b", 1.0, domains="a b"), unseen={"raw": {"b": ALL}}, classes=("x", "y")),
    ]
    _, table = metrics_tables(select(records))
    assert (table.title, table.columns) == ("toy: recall by class", ("x", "y"))
    assert [entry.value for entry in table.rows[0].entries] == [100, 50]
    lacking = replace(ALL, recall=(1.0, None))
    (_, table) = metrics_tables(select([replace(records[1], unseen={"raw": {"b": lacking}})]))
    assert table.rows[0].entries[1].value is None
    many = tuple(map(str, range(21)))
    assert len(metrics_tables(select([replace(record, classes=many) for record in records]))) == 1


def test_the_worst_domain_is_that_of_the_runs_metric() -> None:
    """By accuracy b is worse than a (70 against 75 %), by balanced accuracy a (50 against 70 %)."""
    y, guesses = np.repeat([0, 1], 10), np.repeat([0, 1, 1, 0], [7, 3, 7, 3])
    seventy = metrics(y, guesses, np.eye(2)[guesses])
    for metric, shown in (("accuracy", "b 70.0"), ("balanced_accuracy", "a 50.0")):
        records = [
            replace(finished(name, 0.7, domains="a b"), unseen={"raw": {name: found}})
            for name, found in (("a", ALWAYS), ("b", seventy))
        ]
        chosen = [replace(record, spec=replace(record.spec, metric=metric)) for record in records]
        (table,) = metrics_tables(select(chosen))
        assert table.rows[0].entries[-1].shown == shown
        assert f"that of the lowest {metric.replace('_', ' ')}." in table.caption


def test_other_rules_report_other_weights() -> None:
    record = replace(finished("a", 0.75), unseen={"raw": {"a": ALWAYS}})
    assert metrics_tables(select([record], "oracle")) == []
    assert metrics_tables(select([finished("a", 0.75)])) == []


CLASSES = ("cat", "dog")
EYE = np.eye(2)
FOUND = {  # always cat; and all correct
    "north": metrics(np.array([0, 0, 0, 1]), np.zeros(4, np.int64), EYE[np.zeros(4, np.int64)]),
    "south": metrics(np.array([0, 1]), np.array([0, 1]), EYE),
}


def test_a_frequent_class_does_not_flatter() -> None:
    _, _, north, south = metrics_table(FOUND).splitlines()
    assert north == "| north | 4 | 75.0 % | 75.0 % | 50.0 % | 42.9 % | 50.0 % |"
    assert south == "| south | 2 | 50.0 % | 100.0 % | 100.0 % | 100.0 % | 100.0 % |"
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


def test_confusion_of_all_domains() -> None:
    assert pooled_confusion(FOUND) == [[4, 0], [1, 1]]
