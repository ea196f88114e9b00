"""Several folders in one table."""

from __future__ import annotations

from pathlib import Path

import pytest

from copying import replace
from fgmix.errors import UserError
from fgmix.records.rows import Row
from fgmix.records.schema import RunRecord
from fgmix.results.read import name_origins, read_runs
from fgmix.results.report import tabulate
from fgmix.results.runs import Runs
from fgmix.results.selection import select
from fgmix.results.statistics import compare
from fgmix.results.tables import dataset_table
from report import folders
from results.made import finished, sweep
from results.test_domainbed_sweep import write_sweep


def test_one_folder_is_not_marked(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "runs", folders.records(1))
    assert {record.origin for record in read_runs(folder).records} == {""}


def test_rows_of_two_folders_stand_in_one_table_and_domainbeds_among_them(tmp_path: Path) -> None:
    ours = sweep({"erm": [[0.9, 0.8, 0.7, 0.6]]}, domains="Caltech101 LabelMe SUN09 VOC2007", dataset="VLCS")
    runs = folders.write(tmp_path / "runs", ours)
    theirs = write_sweep(tmp_path / "theirs", "VLCS")
    text = tabulate(read_runs(runs, from_domainbed=[theirs])).to_text().replace("**", "")
    assert "| ERM (runs) | 90.0 |" in text
    assert "| ERM (DomainBed: theirs) | 98.0 ± 0.2 | 64.2 ± 0.8 | 74.1 ± 0.4 | 77.1 ± 0.2 | 78.3 |" in text


def test_different_data_under_one_name_are_no_obstacle_between_folders(tmp_path: Path) -> None:
    a = folders.write(tmp_path / "a", [finished("a", 0.5, data="x")])
    b = folders.write(tmp_path / "b", [finished("a", 0.7, data="y")])
    assert sorted(select(read_runs(a, b).records).accuracies().values()) == [0.5, 0.7]


def with_origin(origin: str, accuracies: dict[str, list[list[float]]]) -> list[RunRecord]:
    return [replace(record, origin=origin) for record in sweep(accuracies)]


def test_a_method_is_compared_with_erm_of_its_folder() -> None:
    first = with_origin("a", {"erm": [[0.5, 0.5, 0.5]], "mixup": [[0.6, 0.6, 0.6]]})
    second = with_origin("b", {"erm": [[0.3, 0.3, 0.3]], "mixup": [[0.6, 0.6, 0.6]]})
    third = with_origin("c", {"mixup": [[0.9, 0.9, 0.9]]})
    found = {c.row: c for c in compare(select([*first, *second, *third]))}
    assert found[Row("mixup", origin="a")].difference == pytest.approx(10)
    assert found[Row("mixup", origin="b")].difference == pytest.approx(30)
    assert found[Row("mixup", origin="c")].baseline == Row("erm", origin="a")  # its own folder has none


def test_the_papers_row_stands_once() -> None:
    rows = [*with_origin("a", {"erm": [[0.5]]}), *with_origin("b", {"erm": [[0.5]]})]
    named = [
        finished("art_painting", 0.5, domains="art_painting cartoon photo sketch", dataset="PACS", algorithm="erm")
        for _ in rows
    ]

    text = tabulate(Runs([replace(r, origin=o) for r, o in zip(named, "ab")]), published=True).to_text()
    assert text.count("ERM (paper)") == 1


def test_names_tell_folders_apart() -> None:
    assert name_origins([Path("/x/runs"), Path("/y/other")]) == ["runs", "other"]
    with pytest.raises(UserError, match="Found one of them twice"):
        name_origins([Path("/x/runs"), Path("/x/y/../runs")])


def test_no_folder_at_all() -> None:
    with pytest.raises(UserError, match="Expected a folder of runs"):
        read_runs()


@pytest.mark.parametrize("arm", ["lr = 1e-3", "lr @ 1e-3", "a (b) + SWA", "erm @ a", "(", " + SWA".strip(), "@"])
def test_an_arm_may_have_any_name(arm: str) -> None:
    """ERM is 50 % in one folder and 58 % in the other: an arm is compared with ERM of its own folder."""
    records = [
        *(replace(record, origin="a") for record in sweep({"erm": [[0.5] * 3]})),
        *(replace(record, origin="b") for record in sweep({"erm": [[0.58] * 3]})),
        *(
            replace(record, origin="b", spec=replace(record.spec, arm=arm), label="FGMix")
            for record in sweep({"fgmix": [[0.61] * 3]})
        ),
    ]
    selection = select(records)
    compared = {comparison.row: comparison for comparison in compare(selection)}
    row = Row("fgmix", arm, origin="b")
    assert compared[row].baseline == Row("erm", origin="b")
    assert compared[row].difference == pytest.approx(3)
    assert selection.label(row) == f"FGMix ({arm}) (b)"
    assert selection.label(row._replace(model="swa")) == f"FGMix ({arm}) (b) + SWA"


def test_the_caption_counts_the_trials_of_each_folder() -> None:
    three = with_origin("a", {"erm": [[0.5, 0.5, 0.5]] * 3})
    one = with_origin("b", {"erm": [[0.5, 0.5, 0.5]]})
    assert "3 trials (a), 1 trial (b); ±" in dataset_table(select([*three, *one]), "toy").caption
    assert ". 3 trials; ±" in dataset_table(select([*three, *(replace(r, origin="b") for r in three)]), "toy").caption
    assert "One trial, hence no ±" in dataset_table(select(one), "toy").caption
