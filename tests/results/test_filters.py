"""A report of some of the runs in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fgmix.cli import app
from fgmix.errors import UserError
from fgmix.report.serve import Followed
from fgmix.results.grids import Grid
from fgmix.results.read import read_runs
from fgmix.results.runs import Runs
from report.folders import write
from results.made import GRID, finished, grid_records, sweep

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
