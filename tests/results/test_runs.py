"""Finished runs in Python: read, keep, group, one row for each, selected and compared, without torch."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import fgmix
from fgmix.cli import app
from fgmix.errors import UserError
from fgmix.records.store import pack
from fgmix.report.serve import Followed
from fgmix.results import runs as runs_module
from fgmix.results.read import read_runs
from fgmix.results.runs import Grid, Runs
from report.folders import write
from results.made import GRID, finished, grid_records, run, sweep

RECORDS = [
    *sweep({"erm": [[0.5, 0.6], [0.4, 0.6]], "coral": [[0.6, 0.7], [0.6, 0.7]]}, domains="a b", settings={"lr": 1e-3}),
    finished("a", 0.7, domains="a b", algorithm="fgmix", settings={"lr": 1e-3, "lam": 3.0}),
]


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize("packed", [False, True])
def test_a_place_is_a_text_or_a_path(kind: type, packed: bool, tmp_path: Path) -> None:
    if packed:
        pack(RECORDS, place := tmp_path / "study.records.xz")
    else:
        place = write(tmp_path / "runs", RECORDS)
    read = fgmix.read_runs(kind(place))
    assert (len(read), read.folders) == (9, (place,))
    assert repr(read) == "<9 runs of coral, erm, fgmix on toy>"


def test_runs_are_kept_by_any_option_or_setting() -> None:
    runs = Runs(RECORDS)
    assert len(runs.keep({"trial_seed": 1, "lr": 0.001}, algorithms="erm")) == 2
    assert [record.spec.algorithm for record in runs.keep({"lam": 3})] == ["fgmix"]
    assert len(runs.keep(datasets=["toy"], test_domains="b")) == 4
    with pytest.raises(UserError, match="Did you mean 'trial_seed'"):
        runs.keep({"trial_seeds": 1})


def test_runs_are_grouped_by_any_option_or_setting() -> None:
    runs = Runs(RECORDS)
    assert {name: len(part) for name, part in runs.group("algorithm").items()} == {"erm": 4, "coral": 4, "fgmix": 1}
    assert {value: len(part) for value, part in runs.group("lam").items()} == {3.0: 1}
    assert [*runs.group("test_domains")] == [("a",), ("b",)]
    assert [*runs.group("dataset")] == ["toy"]
    with pytest.raises(UserError, match="Unknown option or setting"):
        runs.group("nothing")


def test_a_point_of_a_grid_is_selected_as_other_runs_are() -> None:
    runs = Runs([], [Grid(GRID, tuple(grid_records(lambda lam, alpha: lam / 10 + alpha)))])
    with pytest.raises(UserError, match="a grid over lam, alpha"):
        fgmix.select(runs)
    selected = fgmix.select(runs.group("lam")[3.0].group("alpha")[0.1])
    assert sorted(selected.accuracies().values()) == pytest.approx([0.4, 0.4, 0.42, 0.42])


def test_a_row_for_each_run_has_what_it_is_and_what_it_found() -> None:
    averaged = run("a", {10: {"a": (0.3, 0.3), "b": (None, 0.9)}, 20: {"a": (0.5, 0.5), "b": (None, 0.8)}}, swa={
        10: {"a": (0.1, 0.1), "b": (None, 0.1)}, 20: {"a": (0.6, 0.6), "b": (None, 0.7)}
    })  # fmt: skip
    first, *_, last = Runs([averaged, *RECORDS]).to_dicts()
    assert (first["step"], first["validation"], first["accuracy"]) == (10, 0.9, 0.3)
    assert (first["step_swa"], first["validation_swa"], first["accuracy_swa"]) == (20, 0.7, 0.6)
    assert (first["lam"], last["lam"], last["accuracy_swa"]) == (None, 3.0, None)
    assert (last["method"], last["test_domains"], last["trial_seed"], last["steps"]) == ("FGMix", "a", 0, 20)
    assert first.keys() == last.keys()


def test_a_run_that_diverged_at_once_has_a_row() -> None:
    (row,) = Runs([run("a", {}, status="diverged")]).to_dicts()
    assert (row["status"], "accuracy" in row) == ("diverged", False)


def test_rows_are_comma_separated_values(tmp_path: Path) -> None:
    text = Runs([*RECORDS, finished("a", 0.5, domains="a b", arm="=1+1")]).to_csv(tmp_path / "runs.csv")
    assert (tmp_path / "runs.csv").read_text() == text
    rows = [*csv.DictReader(io.StringIO(text))]
    assert [float(row["accuracy"]) for row in rows][:3] == [0.5, 0.6, 0.4]
    assert (rows[0]["lam"], rows[-1]["arm"]) == ("", "'=1+1")


def test_rows_are_a_data_frame_if_pandas_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(RECORDS)
    if find_spec("pandas"):
        means = runs.to_frame().groupby("algorithm")["accuracy"].mean()
        assert means["erm"] == pytest.approx(0.525)
    monkeypatch.setattr(runs_module, "find_spec", lambda _: None)
    with pytest.raises(UserError, match="use to_csv"):
        runs.to_frame()


def test_selected_and_compared_numbers_are_rows_too() -> None:
    selection = fgmix.select(Runs(RECORDS), rule="oracle")
    assert repr(selection) == "<9 of 12 numbers, selected by test-domain validation (oracle)>"
    rows = selection.to_dicts()
    assert [(row["method"], row["accuracy"]) for row in rows[:2]] == [("ERM", 0.5), ("ERM", 0.6)]
    assert "no finished run" in rows[-1]["missing"]
    compared = fgmix.compare(selection, baseline="coral", margin=5)
    assert [row["row"] for row in compared.to_dicts()] == ["ERM", "FGMix"]
    assert compared.to_dicts()[0]["difference"] == pytest.approx(-12.5)
    assert {"interval_low", "new_interval_high", "verdict"} <= compared.to_dicts()[0].keys()
    assert "Differences from CORAL" in str(compared._repr_markdown_())
    assert "<th>ERM</th>" in str(compared._repr_html_())


def test_planned_domains_have_cells_before_they_are_run() -> None:
    planned = Runs([finished("a", 0.5)], test_domains={"toy": {"a", "b"}})
    assert len(fgmix.select(planned).cells) == 2


def test_tables_are_shown_and_saved(tmp_path: Path) -> None:
    tables = fgmix.tabulate(Runs([*RECORDS, finished("a", 0.9, domains="a b", algorithm="<b>")]), baseline="coral")
    assert tables._repr_markdown_() == tables.to_text("md")
    page = tables._repr_html_()
    assert "<b>90.0</b>" in page
    assert "&lt;b&gt;" in page
    for ending, sign in ((".md", "### toy"), (".tex", r"\toprule"), (".csv", "table,row,model")):
        assert sign in tables.save(tmp_path / f"tables{ending}").read_text()
    with pytest.raises(UserError, match=r"ending of a file of tables '\.docx'"):
        tables.save(tmp_path / "tables.docx")
    with pytest.raises(UserError, match="margin"):
        fgmix.tabulate(Runs(RECORDS), margin=0)


def test_a_page_of_runs_from_nowhere_needs_a_path(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Give out"):
        fgmix.write_report(Runs(RECORDS))
    assert fgmix.write_report(Runs(RECORDS), str(tmp_path), rule="oracle").name == "report.html"


def test_the_public_names_leave_torch_out() -> None:
    names = "read_runs", "select", "compare", "tabulate", "plot", "write_report"
    code = f"import fgmix, sys; [getattr(fgmix, name) for name in {names}]; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_command_line_prints_a_line_for_each_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "runs", RECORDS)
    app(["report", str(folder), "--format", "runs"], standalone_mode=False)
    assert capsys.readouterr().out == fgmix.read_runs(folder).to_csv()


RUNS = [
    *sweep({"erm": [[0.5, 0.6, 0.7]], "coral": [[0.6, 0.7, 0.8]]}, settings={"lr": 1e-3}),
    *sweep({"erm": [[0.7, 0.8, 0.9]]}, steps=100, settings={"lr": 1e-2}),
    *sweep({"erm": [[0.1, 0.2]]}, domains="x y", dataset="two", settings={"lr": 1e-3}),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("runs"), RUNS)


@pytest.mark.parametrize(
    ("only", "count"),
    [
        ({}, 11),
        ({"datasets": ("two",)}, 2),
        ({"algorithms": ("coral",)}, 3),
        ({"test_domains": ("a", "x")}, 4),
        ({"where": {"steps": "100"}}, 3),
        ({"where": {"lr": "0.001", "dataset": "toy"}}, 6),
        ({"where": {"eval-every": "10", "pretrained": "false"}}, 11),
        ({"where": {"test_domains": "a"}, "algorithms": ("erm",)}, 2),
    ],
)
def test_runs_that_fit_are_kept(folder: Path, only: dict[str, Any], count: int) -> None:
    assert len(read_runs(folder, **only).records) == count


def test_a_choice_leaves_rows_without_marks(folder: Path) -> None:
    assert {record.origin for record in read_runs(folder, where={"steps": 100}).records} == {""}
    assert {record.origin for record in read_runs(folder).records if record.dataset == "toy"} == {
        "steps = 20",
        "steps = 100",
    }


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ({"datasets": ("toyy",)}, r"Unknown dataset of these runs 'toyy'. Did you mean 'toy'"),
        ({"algorithms": ("CORAL",)}, r"Did you mean 'coral'"),
        ({"test_domains": ("z",)}, r"Unknown test domain of these runs 'z'"),
        ({"where": {"step": "20"}}, r"Unknown option or setting of these runs 'step'. Did you mean 'steps'"),
        ({"where": {"steps": "25"}}, r"Unknown value of `steps` in these runs '25'.* Known: 100, 20\."),
        ({"where": {"steps": "100"}, "algorithms": ("coral",)}, r"Known: 20\."),
    ],
)
def test_a_name_that_no_run_has_is_an_error(folder: Path, only: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_runs(folder, **only)


def test_a_name_may_be_of_one_folder_only(folder: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", [finished("a", 0.5, algorithm="mixup")])
    kept = read_runs(folder, other, algorithms=("mixup", "coral")).records
    assert [record.spec.algorithm for record in kept] == ["coral"] * 3 + ["mixup"]


@pytest.mark.parametrize("format", ["md", "latex", "csv"])
def test_columns_and_average_are_of_the_chosen_domains(
    folder: Path, capsys: pytest.CaptureFixture[str], format: str
) -> None:
    words = ["report", str(folder), "--where", "steps=20", "--datasets", "toy", "--test-domains", "a,c"]
    app([*words, "--format", format], standalone_mode=False)
    printed = capsys.readouterr().out
    assert "60.0" in printed  # ERM's mean of 50 and 70
    assert ("a, c (2 of the 3 domains)" in printed) == (format != "csv")
    assert "80.0" in printed  # CORAL on c
    assert "two" not in printed


def test_the_page_is_of_the_chosen_runs(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    app(["report", str(folder), "--algorithms", "coral", "--format", "html", "--out", str(out)], standalone_mode=False)
    assert "ERM" not in out.read_text().partition("<script")[0].partition("<main")[2].partition("Significance")[0]


def test_a_served_page_waits_for_runs_that_have_a_name(folder: Path) -> None:
    assert "Unknown algorithm of these runs" in Followed(folder, only={"algorithms": "mixup"}).page()


def test_the_values_of_a_grid_are_those_of_its_runs() -> None:
    grid = Grid(GRID, tuple(grid_records(lambda *_: 0.5)))
    (kept,) = Runs([], [grid]).keep({"lam": 3}).grids
    assert (kept.values, len(kept.records)) == ({"lam": (3.0,), "alpha": (0.1, 0.3)}, 8)
