"""Runs of different code of a method are not averaged unasked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from copying import replace
from fgmix.records.schema import RunRecord
from fgmix.records.store import pack
from fgmix.results.read import read_runs
from fgmix.results.selection import Missing, Selected, select
from results.folders import write
from results.made import sweep

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
