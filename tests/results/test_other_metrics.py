"""Metrics beside accuracy, in the tables of a report."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fgmix.metrics import metrics
from fgmix.results.formats import markdown
from fgmix.results.other_metrics import metrics_tables
from fgmix.results.selection import select
from results.made import finished

Y = np.array([0, 0, 0, 1])
ALWAYS, ALL = (metrics(Y, guesses, np.eye(2)[guesses]) for guesses in (np.zeros(4, int), Y))


def test_a_row_for_each_method_and_model_that_kept_them() -> None:
    records = [
        replace(finished("a", 0.75, domains="a b"), unseen={"raw": {"a": ALWAYS.as_dict()}}),
        replace(finished("b", 1.0, domains="a b"), unseen={"raw": {"b": ALL.as_dict()}}),
        finished("a", 0.5, domains="a b", algorithm="coral"),  # made by an older version
    ]
    (table,) = metrics_tables(select(records))
    (row,) = table.rows
    values = [entry.value for entry in row.entries]
    assert values == pytest.approx([75, 87.5, 75, 100 * np.mean([3 / 7, 1]), 75, 50, 75])
    assert row.entries[-1].shown == "a 75.0"
    assert "| ERM | 75.0 | 87.5 |" in markdown(table)


def test_other_rules_report_other_weights() -> None:
    record = replace(finished("a", 0.75), unseen={"raw": {"a": ALWAYS.as_dict()}})
    assert metrics_tables(select([record], "oracle")) == []
    assert metrics_tables(select([finished("a", 0.75)])) == []
