"""Runs of a row that differ: two settings are rows of their own, edited code is named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from copying import replace
from fgmix.records.rows import Row
from fgmix.records.schema import RunRecord
from fgmix.records.store import pack
from fgmix.results.read import read_runs
from fgmix.results.report import tabulate
from fgmix.results.selection import Missing, Selected, select
from fgmix.results.settings import mark_settings
from fgmix.results.statistics import compare
from results.folders import write
from results.made import finished, sweep


def marks(*records: Any) -> list[tuple[str, str]]:
    return [(record.origin, record.variant) for record in mark_settings([*records])]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"steps": 20}, {"steps": 100}, ["steps = 20", "steps = 100"]),
        ({"settings": {"lam": 1.0}}, {"settings": {"lam": 3.0}}, ["λ₀ = 1", "λ₀ = 3"]),
        ({"batch_size": 8}, {"batch_size": 9}, ["batch_size = 8", "batch_size = 9"]),
        (
            {"image_size": 32, "mean": (0.1,)},
            {"image_size": 64, "mean": (0.2,)},
            ["image_size = 32", "image_size = 64"],
        ),
        ({"settings": {"lr": 0.1}}, {"settings": {"lr": 0.2}, "draw": 1}, ["", ""]),  # a search
        ({"seed": 1}, {"seed": 2, "trial": 1}, ["", ""]),
        ({}, {"arm": "other", "steps": 50}, ["", ""]),  # rows of their own already
        ({}, {}, ["", ""]),  # two copies of a run
    ],
)
def test_a_row_is_marked_by_what_differs(first: dict[str, Any], second: dict[str, Any], expected: list[str]) -> None:
    assert marks(finished("a", 0.5, **first), finished("a", 0.5, **second)) == [(each, "") for each in expected]


def test_optimisers_are_apart_with_the_default_that_specs_leave_out_and_in_a_search_too() -> None:
    records = [
        finished("a", 0.5, algorithm=algorithm, settings={"lr": draw, **optimiser}, draw=draw)
        for optimiser in ({}, {"optimizer": "adamw"})
        for algorithm in ("erm", "coral")
        for draw in (0, 1)
    ]
    assert marks(*records) == [("optimizer = adam", "")] * 4 + [("optimizer = adamw", "")] * 4
    drawn = [finished("a", 0.5, settings={"clip_norm": float(draw)}, draw=draw) for draw in (1, 2)]
    assert marks(*drawn) == [("", "")] * 2  # a search over a setting of the optimiser


def test_a_setting_that_other_methods_lack_marks_its_own_rows() -> None:
    records = [finished("a", 0.5, settings={"lr": 0.1})] + [
        finished("a", 0.5, algorithm="fgmix", settings={"lr": 0.1, "lam": lam}) for lam in (1.0, 3.0)
    ]
    assert marks(*records) == [("", ""), ("", "λ₀ = 1"), ("", "λ₀ = 3")]
    assert marks(*records, finished("a", 0.5, settings={"lr": 0.2})) == [
        ("lr = 0.1", ""),
        ("lr = 0.1", "λ₀ = 1"),
        ("lr = 0.1", "λ₀ = 3"),
        ("lr = 0.2", ""),
    ]
    here, there = ([replace(record, origin=origin) for record in mark_settings(records)] for origin in "ab")
    compared = compare(select([*here, *there]))
    assert {(c.row.origin, c.row.arm, c.baseline.origin) for c in compared} == {
        (origin, arm, origin) for origin in "ab" for arm in ("λ₀ = 1", "λ₀ = 3")
    }


def test_rows_of_two_settings_are_compared_with_erm_of_theirs(tmp_path: Path) -> None:
    short = sweep({"erm": [[0.5, 0.5, 0.5]], "mixup": [[0.6, 0.6, 0.6]]}, steps=20)
    long = sweep({"erm": [[0.7, 0.7, 0.7]], "mixup": [[0.9, 0.9, 0.9]]}, steps=100)
    write(tmp_path, [*short, *long])
    results = read_runs(tmp_path)
    compared = {c.row: c for c in compare(select(results.records))}
    assert compared[Row("mixup", origin="steps = 20")].difference == pytest.approx(10)
    assert compared[Row("mixup", origin="steps = 100")].difference == pytest.approx(20)
    text = tabulate(results).to_text()
    assert "| ERM (steps = 20) | 50.0 | 50.0 | 50.0 | 50.0 |" in text
    assert "–" not in text.partition("Accuracy (%)")[0]


ACCURACIES = {"erm": [[0.5] * 3] * 2, "coral": [[0.6] * 3] * 2}


def runs(*codes: str) -> list[RunRecord]:
    """Two trials of two methods; CORAL's trials have these codes."""
    return [
        replace(record, code=codes[record.spec.trial_seed] if record.spec.algorithm == "coral" else "e")
        for record in sweep(ACCURACIES)
    ]


def missing(records: list[RunRecord]) -> set[str]:
    """Methods without a number."""
    cells = select(records).cells
    assert all(isinstance(each, Missing | Selected) for each in cells.values())
    return {cell.row.algorithm for cell, found in cells.items() if isinstance(found, Missing)}


@pytest.mark.parametrize(
    ("codes", "without"), [(("a", "a"), set()), (("", ""), set()), (("a", "b"), {"coral"}), (("", "b"), {"coral"})]
)
def test_a_cell_that_would_mix_two_codes_has_no_number(codes: tuple[str, str], without: set[str]) -> None:
    records = runs(*codes)
    assert missing(records) == without
    reasons = {found.reason for found in select(records).cells.values() if isinstance(found, Missing)}
    assert all("code" in reason and "--accept-code" in reason for reason in reasons)


def test_a_note_counts_the_runs_of_each_code_and_one_option_accepts_them(tmp_path: Path) -> None:
    write(tmp_path, runs("new", "old"))
    for number in range(9, 12):
        os.utime(tmp_path / f"run{number}" / "record.json", (1e9, 1e9))
    results = read_runs(tmp_path)
    (note,) = results.notes
    assert note.startswith("CORAL on toy: 3 runs of code old")  # the oldest file first
    assert "3 runs of code new, the last of 20" in note
    accepted = read_runs(tmp_path, accept_code=True)
    assert accepted.notes == ()
    assert missing(list(accepted.records)) == set()
    pack(results.records, packed := tmp_path / "all.records.xz")
    assert len(read_runs(packed).notes) == 1
    assert read_runs(packed, accept_code=True).notes == ()


@pytest.mark.parametrize("code", ["", "a"])
def test_runs_of_one_code_have_no_note(code: str, tmp_path: Path) -> None:
    write(tmp_path, runs(code, code))
    assert read_runs(tmp_path).notes == ()
