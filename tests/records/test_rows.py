"""Rows are values; texts are made from them."""

from __future__ import annotations

from copying import replace
from fgmix.records.rows import Row, collect_labels, label_row, record_row, spec_row
from results.made import finished


def test_models_of_a_run_share_its_runs_and_folders_its_row() -> None:
    row = Row("fgmix", "γ = 10", "swa", "runs")
    assert (row.runs, row.anywhere) == (Row("fgmix", "γ = 10", "raw", "runs"), Row("fgmix", "γ = 10", "swa"))
    assert row.key == row.runs.key == "fgmix (γ = 10) @ runs"


def test_different_rows_have_different_keys_whatever_their_names() -> None:
    parts = ["", "a", "a)", ") @ a", "a (a)", "@ a", "\\", "a\\)", "(", " @ "]
    rows = [Row(name, arm, "raw", origin) for name in parts for arm in parts for origin in parts]
    assert len({row.key for row in rows}) == len(rows)


def test_rows_of_specs_and_records() -> None:
    record = finished("a", 0.5, algorithm="coral", arm="γ = 2")
    assert spec_row(record.spec) == record_row(record) == Row("coral", "γ = 2")
    assert record_row(replace(record, origin="x"), "swa") == Row("coral", "γ = 2", "swa", "x")


def test_a_label_comes_from_the_first_record_that_has_one() -> None:
    bare, named = (replace(finished("a", 0.5, algorithm="mine"), label=label) for label in ("mine", "Mine"))
    labels = collect_labels([bare, replace(named, origin="x"), replace(named, label="Other")])
    assert label_row(labels, Row("mine")) == "Mine"
    assert label_row(labels, Row("mine", model="swa", origin="x")) == "Mine (x) + SWA"
    assert label_row(labels, Row("unknown", "arm")) == "unknown (arm)"
