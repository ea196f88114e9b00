"""Finished runs in Python: read, keep, group, one row for each, selected and compared, without torch."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import fgmix
from fgmix.cli import app
from fgmix.errors import UserError
from fgmix.records.store import pack
from fgmix.results import tabular
from fgmix.results.grids import Grid
from fgmix.results.runs import Runs
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
    monkeypatch.setattr(tabular, "find_spec", lambda _: None)
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
