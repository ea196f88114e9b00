"""Reports: what a folder holds, tables of it, the runs behind a number, and the command that makes a run again."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fgmix.errors import UserError
from fgmix.results.grids import Grid, grid_tables, split_grids
from fgmix.results.reporting import COST_FILE, NothingFinished, Results, collect, command, explained, report_text
from fgmix.runs.record import RunRecord
from fgmix.runs.spec import RunSpec
from fgmix.sweeps.folder import Plan, read_plans, write_plan
from fgmix.sweeps.running import run_sweeps
from results.made import finished, random_sweep, run
from sweeps.toys import QUICK, Here, make_data, toy_sweep


def write(out: Path, records: list[RunRecord]) -> None:
    """Records into folders of their own, as compact as JSON gets."""
    for number, record in enumerate(records):
        folder = out / f"run{number}"
        folder.mkdir(parents=True)
        (folder / "record.json").write_text(json.dumps(record.as_dict()))


# What a folder holds


def test_records_are_found_at_any_depth(tmp_path: Path) -> None:
    write(tmp_path / "a", [finished("a", 0.5)])
    write(tmp_path / "b" / "c", [finished("b", 0.5)])
    found = collect(tmp_path)
    assert [record.spec.test_domains for record in found.records] == [("a",), ("b",)]
    assert found.records[0].folder == tmp_path / "a" / "run0"


def test_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NothingFinished, match=r"Found none. Run `fgmix sweep"):
        collect(tmp_path)


@pytest.mark.long
def test_twenty_thousand_records_within_ten_seconds(tmp_path: Path) -> None:
    """Alone on a machine: 5 datasets × 10 methods × 5 trials × 20 draws × 4 domains, five evaluations of two models."""
    write(tmp_path, random_sweep(5, 10, 5, 20))
    started = time.process_time()
    text = report_text(collect(tmp_path), published=True)
    seconds = time.process_time() - started
    assert text.count("\n| ERM |") == 7  # five datasets, the overall table, the ranks
    assert seconds < 10


def test_two_thousand_records_from_disk(tmp_path: Path) -> None:
    write(tmp_path, random_sweep(5, 5, 5, 4))
    results = collect(tmp_path)
    assert len(results.records) == 2000
    text = report_text(results)
    assert text.count("\n| ERM |") == 7
    assert "Average rank over 100 trials and test domains" in text


@pytest.mark.parametrize("content", ["[]", "{}", '{"milliseconds": [["erm", "fast"]]}'])
def test_times_that_are_none_are_said(content: str, tmp_path: Path) -> None:
    (tmp_path / COST_FILE).write_text(content)
    with pytest.raises(UserError, match="Expected times per step"):
        collect(tmp_path)


def test_averaged_times_have_their_row(tmp_path: Path) -> None:
    times = {"milliseconds": [["erm", 10.0], ["fgmix", 11.0]], "averaged_milliseconds": [["fgmix", 12.0]]}
    (tmp_path / COST_FILE).write_text(json.dumps(times))
    assert "| FGMix + SWA |" in report_text(collect(tmp_path))


# Tables


def test_marks_are_of_the_dataset_whose_table_they_stand_in() -> None:
    """m1 beats ERM by far on d1 and equals it on d2."""
    trials = range(3)
    records = [
        finished(test, accuracy + 0.01 * trial, algorithm=algorithm, dataset=dataset, trial=trial)
        for dataset, gain in (("d1", 0.3), ("d2", 0.0))
        for algorithm, accuracy in (("erm", 0.5), ("m1", 0.5 + gain))
        for test in "abc"
        for trial in trials
    ]
    text = report_text(Results(records))
    first, second, overall, differences = text.split("### ")[1:5]
    assert "| m1 |" in first
    assert "| m1 ≈ |" in second
    assert overall.startswith("Overall")
    assert differences.startswith("Differences from ERM")


def test_without_a_number_of_erm_there_is_nothing_to_compare_with() -> None:
    only = report_text(Results([finished("a", 0.5, algorithm="m1")]))
    assert "Differences" not in only
    diverged = replace(finished("a", 0.5), evaluations=(), status="diverged", diverged_at=3)
    assert "Differences" not in report_text(Results([finished("a", 0.5, algorithm="m1"), diverged]))


@pytest.mark.parametrize(("format", "sign"), [("md", "| 60.0 |"), ("latex", r"\toprule"), ("csv", "toy,ERM,a,60.0")])
def test_formats(format: str, sign: str) -> None:
    assert sign in report_text(Results([finished("a", 0.6)]), format=format)


@pytest.mark.parametrize("format", ["md", "latex", "csv"])
def test_ranks_stand_in_every_format(format: str) -> None:
    records = [
        finished(test, accuracy, algorithm=algorithm)
        for algorithm, accuracy in (("erm", 0.5), ("m1", 0.6))
        for test in "abc"
    ]
    text = report_text(Results(records), format=format)
    assert text.index("m1", text.index("Ranks")) < text.index("ERM", text.index("Ranks"))  # the best first
    assert all(rank in text for rank in ("1.00", "2.00"))


@pytest.mark.parametrize("format", ["md", "latex", "csv"])
def test_where_nothing_can_be_ranked_the_report_says_why(format: str) -> None:
    apart = [finished("a", 0.5), finished("b", 0.6, algorithm="m1")]
    assert "Found 2 methods and 0 in common" in report_text(Results(apart), format=format)
    assert "Ranks" not in report_text(Results(apart[:1]), format=format)


# Grids


def grid_records(accuracy: Callable[[float, float], float], **keys: Any) -> list[RunRecord]:
    records = []
    for lam in (1.0, 3.0):
        for alpha in (0.1, 0.3):
            for test, trial in (("a", 0), ("b", 0), ("a", 1), ("b", 1)):
                name = f"{lam} {alpha} {test} {trial}"
                record = finished(
                    test,
                    accuracy(lam, alpha) + 0.02 * trial,
                    domains="a b",
                    trial=trial,
                    algorithm="fgmix",
                    settings={"lam": lam, "alpha": alpha},
                    **keys,
                )
                records.append(replace(record, folder=Path("out", name)))
    return records


VALUES = {"lam": (1.0, 3.0), "alpha": (0.1, 0.3)}


def test_a_grid_is_a_table_of_its_settings() -> None:
    (table,) = grid_tables(Grid(VALUES, tuple(grid_records(lambda lam, alpha: 0.1 * lam + alpha))))
    assert table.title == "toy: FGMix by λ₀ and α"
    assert (table.corner, table.columns) == ("λ₀", ("α = 0.1", "α = 0.3"))
    assert [row.label for row in table.rows] == ["1", "3"]
    shown = [[entry.shown for entry in row.entries] for row in table.rows]
    # mean of two trials that differ by 2 points: std 1, standard error 1/√2
    assert shown == [["21.0 ± 0.7", "41.0 ± 0.7"], ["41.0 ± 0.7", "61.0 ± 0.7"]]
    assert "2 trials; ± standard error" in table.caption
    assert "Avg" not in table.caption  # there is no such column


def test_averaged_models_have_a_table_of_their_own() -> None:
    parts = {20: {"a": (0.4, 0.4), "b": (None, 0.5)}}
    averaged = {20: {"a": (0.7, 0.7), "b": (None, 0.5)}}
    record = run("a", parts, swa=averaged, algorithm="fgmix", settings={"lam": 1.0})
    other = run("b", {20: {"b": (0.4, 0.4), "a": (None, 0.5)}}, swa={20: {"b": (0.7, 0.7), "a": (None, 0.5)}})
    other = replace(other, spec=replace(other.spec, algorithm="fgmix", settings={"lam": 1.0}))
    tables = grid_tables(Grid({"lam": (1.0,)}, (record, other)))
    assert [table.title for table in tables] == ["toy: FGMix by λ₀", "toy: FGMix + SWA by λ₀"]
    assert [table.rows[0].entries[0].shown for table in tables] == ["40.0", "70.0"]
    assert tables[0].rows[0].label == "FGMix"  # one setting: its values are the columns, the method is the row


def test_domains_that_a_grid_holds_out_nowhere_are_not_missed_but_others_are() -> None:
    a_only = [record for record in grid_records(lambda *_: 0.5) if record.spec.test_domains == ("a",)]
    (table,) = grid_tables(Grid(VALUES, tuple(a_only)))
    assert table.rows[0].entries[0].shown == "51.0 ± 0.7"
    assert table.caption.endswith("Test domains: a.")
    but_one = [record for record in grid_records(lambda *_: 0.5) if str(record.folder) != "out/1.0 0.1 b 1"]
    (table,) = grid_tables(Grid(VALUES, tuple(but_one)))
    assert table.rows[0].entries[0].note == "1 of 2 trials; trial 1: no run holds out b"
    assert table.rows[0].entries[1].note == ""


def test_a_point_without_runs_says_so() -> None:
    records = [record for record in grid_records(lambda *_: 0.5) if record.spec.settings["lam"] == 3.0]
    (table,) = grid_tables(Grid(VALUES, tuple(records)))
    assert [(entry.shown, entry.note) for entry in table.rows[0].entries] == [("–", "not run")] * 2
    assert "2 trials" in table.caption


@pytest.mark.parametrize(("dataset", "label"), [("TerraIncognita", "3 (paper)"), ("toy", "3 (paper, TerraIncognita)")])
def test_the_papers_grid_stands_beside_on_request(dataset: str, label: str) -> None:
    (table,) = grid_tables(Grid(VALUES, tuple(grid_records(lambda *_: 0.5, dataset=dataset))), published=True)
    theirs = {row.label: [entry.shown for entry in row.entries] for row in table.rows}
    assert theirs[label] == ["49.2", "49.0"]  # the paper's λ₀ = 3 at α = 0.1 and 0.3
    assert len(table.rows) == 4


def test_a_folder_with_a_grid_and_a_sweep_reports_both(tmp_path: Path) -> None:
    """What a sweep without a grid wants too is in both; what the grid alone wants is in the grid's table only."""
    records = grid_records(lambda lam, _: 0.1 * lam)
    names = [record.folder.name for record in records if record.folder]
    shared = [name for name in names if name.startswith("3.0 0.1")]
    extra = replace(finished("a", 0.9, domains="a b"), folder=Path("out/erm"))
    plans = [Plan(tuple(names), VALUES), Plan((*shared, "erm"), {})]
    plain, (grid,) = split_grids([*records, extra], {Path("out"): plans})
    assert [record.folder.name for record in plain if record.folder] == [*shared, "erm"]
    assert len(grid.records) == 16
    text = report_text(Results(plain, [grid]))
    assert text.index("### toy\n") < text.index("### toy: FGMix by λ₀ and α")
    assert "keep one of them" not in text

    write_plan(tmp_path, Plan(tuple(names[:2]), VALUES), {})
    write_plan(tmp_path, Plan(tuple(names[2:]), VALUES), {})
    _, grids = split_grids(records, {Path("out"): read_plans(tmp_path)})
    assert len(grids) == 1  # two sweeps over one grid
    assert len(grids[0].records) == 16


def test_a_grid_below_the_folder_is_a_grid(tmp_path: Path) -> None:
    """One grid in two folders, and a plain run elsewhere that is called like one of its runs."""
    records = grid_records(lambda lam, _: 0.1 * lam)
    for place, part in (("first", records[:8]), ("second", records[8:])):
        write(tmp_path / place, part)
        write_plan(tmp_path / place, Plan(tuple(f"run{i}" for i in range(8)), VALUES), {})
    write(tmp_path / "third", [finished("a", 0.9, domains="a b")])
    write_plan(tmp_path / "third", Plan(("run0",), {}), {})
    found = collect(tmp_path)
    assert [record.spec.algorithm for record in found.records] == ["erm"]
    (grid,) = found.grids
    assert len(grid.records) == 16


def test_times_per_step_stand_beside_the_papers(tmp_path: Path) -> None:
    (tmp_path / COST_FILE).write_text(json.dumps({"milliseconds": [["erm", 10.0], ["fgmix", 12.0]]}))
    text = report_text(collect(tmp_path))
    assert "| FGMix | 12.0 | 1.20 | 312.7 | 1.10 |" in text


# Behind a number


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real sweep with every kind of setting in its specs."""
    folder = tmp_path_factory.mktemp("swept")
    common = {**QUICK, "checkpoint_every": 3, "holdout_fraction": 0.25, "head": "mlp"}
    sweep = toy_sweep(make_data(folder), "fgmix", "erm", hparams=2, space="paper", common=common, test_domains=("us",))
    run_sweeps([sweep], folder / "out", Here(), progress=False)
    return folder / "out"


def test_explained_lists_every_run_behind_a_number(swept: Path) -> None:
    lines = explained(collect(swept), "scans", "fgmix", "us")
    folders = sorted(str(path) for path in swept.glob("scans-fgmix-us-*"))
    text = "\n".join(lines)
    assert lines[0].startswith("FGMix, scans, us, trial 0: ")
    assert "the best of 2 draws" in lines[0]
    assert (
        sorted({line.split(": ")[1] for line in lines if line.startswith(("  reported", "  not selected"))}) == folders
    )
    record = collect(swept).records[0]
    for part in (f"data {record.data_fingerprint}", f"fgmix {record.fgmix_version}", "torch ", "python ", "draw 1"):
        assert part in text


def test_explained_says_why_there_is_no_number() -> None:
    diverged = replace(finished("a", 0.5), evaluations=(), status="diverged", diverged_at=3)
    (line, _) = explained(Results([diverged]), "toy", "erm", "a")
    assert line == "ERM, toy, a, trial 0: no number (the only run diverged before the first evaluation)"


def test_explained_tells_the_points_of_a_grid_apart() -> None:
    grid = Grid(VALUES, tuple(grid_records(lambda *_: 0.5)))
    heads = [line for line in explained(Results([], [grid]), "toy", "fgmix", "a") if line.startswith("FGMix")]
    assert len(heads) == 8  # four points, two trials
    assert heads[0].startswith("FGMix, λ₀ = 1, α = 0.1, toy, a, trial 0: 50.0 %")


def test_an_unknown_cell_names_the_nearest(swept: Path) -> None:
    with pytest.raises(UserError, match="Did you mean 'scans fgmix us'"):
        explained(collect(swept), "scans", "fgmix", "uss")


def folder_of(monkeypatch: pytest.MonkeyPatch, printed: str) -> str:
    """The name of the folder that a printed command would make its run in, by way of the real command line."""
    import fgmix.runs.loop
    from fgmix.cli import app

    made: list[str] = []

    def instead_of_fit(spec: RunSpec, out: Path, **_: Any) -> Any:  # noqa: ARG001
        made.append(fgmix.runs.loop.name_run(spec, fgmix.runs.loop.load_dataset(spec, progress=False)))
        raise UserError("far enough")

    monkeypatch.setattr(fgmix.runs.loop, "fit", instead_of_fit)
    program, *arguments = shlex.split(printed)
    assert program == "fgmix"
    with pytest.raises(UserError, match="far enough"):
        app(arguments, standalone_mode=False)
    return made[0]


def test_the_printed_command_makes_the_same_run_again(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = collect(swept).records
    assert len(records) == 4
    for record in records:
        assert record.folder is not None
        assert folder_of(monkeypatch, command(record.spec)) == record.folder.name


def test_every_field_of_a_spec_survives_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import fields

    from fgmix.runs.prepared import load_dataset, name_run

    # Each field away from its default; a space and a dash in front are the shell's and the parser's troubles.
    data = make_data(tmp_path, "my scans")
    weights = tmp_path / "weights.pt"
    weights.write_bytes(b"w")
    spec = RunSpec(
        dataset=data,
        algorithm="fgmix",
        test_domains=("us", "ct"),
        settings={"domains_per_tuple": None, "scale": "rms", "lam": 3.0, "gamma": 1 / 3, "n": 7},
        backbone="identity",
        pretrained=True,
        weights=str(weights),
        head="mlp",
        dropout=0.1,
        freeze_bn=True,
        image_size=5,
        steps=7,
        batch_size=9,
        eval_every=2,
        checkpoint_every=3,
        seed=11,
        trial_seed=2,
        hparams_seed=4,
        holdout_fraction=0.3,
        classes_per_batch=2,
        protocol="domainbed",
        averaging="swad",
        averaging_start=1,
        evaluate_train=True,
        snapshots=2,
        bf16=True,
        channels_last=True,
        data_root=str(tmp_path),
        skip_unreadable=True,
    )
    default = RunSpec(dataset="", algorithm="", test_domains=("",))
    assert [f.name for f in fields(RunSpec) if getattr(spec, f.name) == getattr(default, f.name)] == []
    spec = replace(spec, algorithm="erm", settings={"lr": 0.1}, test_domains=("us",))
    assert folder_of(monkeypatch, command(spec)) == name_run(spec, load_dataset(spec, progress=False))
    mixing = replace(
        spec, algorithm="fgmix", settings={"domains_per_tuple": None, "scale": "rms", "gamma": 1 / 3, "n": 7}
    )
    assert folder_of(monkeypatch, command(mixing)) == name_run(mixing, load_dataset(spec, progress=False))


def test_booleans_of_a_spec_can_be_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fgmix.runs.prepared import load_dataset, name_run

    spec = RunSpec(
        dataset=make_data(tmp_path), algorithm="erm", test_domains=("us",), pretrained=False, freeze_bn=False,
        channels_last=False,
    )  # fmt: skip
    assert folder_of(monkeypatch, command(spec)) == name_run(spec, load_dataset(spec, progress=False))
