"""What a folder of runs holds."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fgmix.records.files import read_json, write_json
from fgmix.records.status import Plan, write_plan
from fgmix.results.read import NothingFinished, read_runs
from fgmix.results.report import tabulate
from fgmix.results.selection import select
from fgmix.results.tables import dataset_table
from results.folders import write
from results.made import finished, random_sweep


def test_records_are_found_at_any_depth(tmp_path: Path) -> None:
    write(tmp_path / "a", [finished("a", 0.5)])
    write(tmp_path / "b" / "c", [finished("b", 0.5)])
    found = read_runs(tmp_path)
    assert [record.spec.test_domains for record in found.records] == [("a",), ("b",)]
    assert found.records[0].folder == tmp_path / "a" / "run0"


@pytest.mark.parametrize(("planned", "columns"), [(["a", "b"], ("a", "b")), (None, ("a", "b", "c")), (["a"], ("a",))])
def test_the_average_is_over_the_domains_that_the_sweep_planned(
    tmp_path: Path, planned: list[str] | None, columns: tuple[str, ...]
) -> None:
    """Of domains a, b and c only a is finished."""
    write(tmp_path, [finished("a", 0.5)])
    write_plan(tmp_path, Plan(("run0", "run1"), {}), {"test_domains": planned})
    results = read_runs(tmp_path)
    table = dataset_table(select(results.records, test_domains=results.test_domains), "toy")
    assert table.columns == (*columns, "Avg")
    assert table.rows[0].entries[-1].value == (50 if columns == ("a",) else None)
    assert (f"({len(columns)} of the 3 domains)" in table.caption) == (len(columns) < 3)


def test_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NothingFinished, match=r"Found none. Run `fgmix sweep"):
        read_runs(tmp_path)


@pytest.mark.long
def test_twenty_thousand_records_within_ten_seconds(tmp_path: Path) -> None:
    """Alone on a machine: 5 datasets × 10 methods × 5 trials × 20 draws × 4 domains, five evaluations of two models."""
    write(tmp_path, random_sweep(5, 10, 5, 20))
    started = time.process_time()
    text = tabulate(read_runs(tmp_path), published=True).to_text()
    seconds = time.process_time() - started
    assert text.count("\n| ERM |") == 7  # five datasets, the overall table, the ranks
    assert seconds < 10


def test_many_records_from_disk(tmp_path: Path) -> None:
    write(tmp_path, random_sweep(5, 5, 2, 2))
    results = read_runs(tmp_path)
    assert len(results.records) == 400
    text = tabulate(results).to_text()
    assert text.count("\n| ERM |") == 7
    assert "Average rank over 40 trials and test domains" in text


def test_a_bad_record_is_left_out_with_a_note(tmp_path: Path) -> None:
    """One is damaged, one was edited to what no run produces; the others are read."""
    write(tmp_path, [finished("a", 0.5), finished("b", 0.5), finished("c", 0.5)])
    damaged, edited = (tmp_path / name / "record.json" for name in ("run0", "run1"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    write_json(edited, {**read_json(edited), "domains": []})
    found = read_runs(tmp_path)
    assert [record.spec.test_domains for record in found.records] == [("c",)]
    assert [str(path) in note for path, note in zip((damaged, edited), found.notes, strict=True)] == [True, True]
