"""DomainBed's folders: read, selected, written, read again. All fixtures are made here, in its format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from copying import replace
from fgmix import algorithms
from fgmix.errors import UserError
from fgmix.records.benchmarks import BENCHMARKS, known_domains
from fgmix.records.rows import Row
from fgmix.records.status import Plan, write_plan
from fgmix.records.store import unpack, write_record
from fgmix.results.domainbed import from_domainbed, name_algorithm, to_domainbed
from fgmix.results.explain import explain_number
from fgmix.results.read import read_runs
from fgmix.results.report import Choices, all_tables, report_tables
from fgmix.results.selection import Cell, Rule, Selected, select
from fgmix.results.statistics import compare
from results.made import finished, random_sweep, run


def write_run(
    folder: Path,
    test_envs: list[int],
    lines: list[tuple[int, list[float]]],
    *,
    done: bool = True,
    tail: str = "",
    **args: Any,
) -> None:
    """A run as DomainBed writes it; `lines` are steps with in, out of every domain in turn."""
    folder.mkdir(parents=True)
    header = {
        "dataset": "PACS",
        "algorithm": "ERM",
        "test_envs": test_envs,
        "hparams_seed": 0,
        "trial_seed": 0,
        "seed": 7,
        "steps": 11,
        "checkpoint_freq": None,
        "holdout_fraction": 0.2,
        "uda_holdout_fraction": 0,
        "output_dir": str(folder),
        **args,
    }
    text = ""
    for step, values in lines:
        keys = {f"env{i // 2}_{('in', 'out')[i % 2]}_acc": value for i, value in enumerate(values)}
        hparams = {"lr": 5e-05, "batch_size": 32, "resnet_dropout": 0.1, "class_balanced": False}
        line = {"args": header, "hparams": hparams, "step": step, "epoch": 1.5, "loss": 0.25, "mem_gb": 9.0, **keys}
        text += json.dumps({**line, "new_in_some_version": {"a": [1]}}, sort_keys=True) + "\n"
    (folder / "results.jsonl").write_text(text + tail)
    (folder / "out.txt").write_text("")
    if done:
        (folder / "done").write_text("done")


def test_a_run_becomes_a_record(tmp_path: Path) -> None:
    write_run(tmp_path / "r", [2], [(10, [0.9] * 8), (0, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])])
    sweep = from_domainbed(tmp_path)
    (record,) = sweep.records
    assert sweep.notes == ()
    assert record.spec.dataset == "PACS"
    assert record.spec.algorithm == "erm"
    assert record.spec.test_domains == ("photo",)
    assert record.sources == ("art_painting", "cartoon", "sketch")
    assert (record.spec.batch_size, record.spec.dropout, record.spec.seed) == (32, 0.1, 7)
    assert record.spec.settings == {"lr": 5e-05, "class_balanced": False}
    assert [evaluation.step for evaluation in record.evaluations] == [0, 10]
    assert record.evaluations[0].accuracy["raw"]["photo"] == {"train": 0.5, "holdout": 0.6}
    assert record.evaluations[0].metrics == {"loss": 0.25}
    assert record.folder == tmp_path / "r"


def test_selection_as_domainbed_would(tmp_path: Path) -> None:
    """Domain 0 held out, two draws: worked out on paper by DomainBed's three rules."""
    draws = [[(0, [0.10, 0.9, 0, 0.5, 0, 0.5]), (10, [0.20, 0.4, 0, 0.6, 0, 0.4])],
             [(0, [0.30, 0.1, 0, 0.2, 0, 0.8]), (10, [0.40, 0.6, 0, 0.1, 0, 0.1])]]  # fmt: skip
    pairs = [[(0, 0.2), (10, 0.7)], [(0, 0.6), (10, 0.5)]]
    for h, lines in enumerate(draws):
        write_run(tmp_path / f"single{h}", [0], lines, hparams_seed=h, dataset="Other", algorithm="Theirs")
        for v in (1, 2):
            held = [(step, [0.0] * (2 * v) + [x] + [0.0] * (5 - 2 * v)) for step, x in pairs[h]]
            write_run(tmp_path / f"pair{h}{v}", [0, v], held, hparams_seed=h, dataset="Other", algorithm="Theirs")
    records = from_domainbed(tmp_path).records
    cell = Cell("Other", Row("theirs"), 0, "env0")
    expected = {
        "training_domain": (1, 0, 0.30),  # .5 at every step but draw 1's last: first step, highest draw
        "oracle": (1, 10, 0.40),  # .6 beats .4; the .9 is not at the last step
        "leave_one_out": (0, 10, 0.20),  # .7 beats .6
    }
    for rule, answer in expected.items():
        outcome = select(records, rule).cells[cell]  # type: ignore[arg-type]
        assert isinstance(outcome, Selected)
        assert (outcome.record.spec.hparams_seed, outcome.step, outcome.accuracy) == answer


def test_an_unfinished_trial_counts_in_the_average_as_it_does_in_domainbed(tmp_path: Path) -> None:
    """Two datasets so that there is an overall table; of one, only two of three domains were run."""
    for dataset, tests in (("Other", (0, 1)), ("Third", (0, 1, 2))):
        for t in tests:
            accuracies = [0.2 * (t + 1) if i == 2 * t else 0.5 for i in range(6)]
            write_run(tmp_path / f"{dataset}{t}", [t], [(10, accuracies)], dataset=dataset)
    results = read_runs(from_domainbed=tmp_path)
    tables = all_tables(results, select(results.records), Choices())
    (overall,) = (table for table in tables if table.title == "Overall")
    assert [entry.shown for entry in overall.rows[0].entries] == ["30.0", "40.0", "35.0"]
    assert "as in DomainBed" in overall.caption


def test_broken_lines_are_skipped_and_told(tmp_path: Path) -> None:
    whole = [(0, [0.5] * 8)]
    write_run(tmp_path / "cut", [0], whole, done=False, tail='{"args": {"algorithm": "ERM", "chec')
    write_run(tmp_path / "empty", [1], [], done=False)
    write_run(tmp_path / "nan", [2], [*whole, (10, [float("nan")] * 8)])
    write_run(tmp_path / "odd", [3], whole, tail='[1, 2]\n"text"\n')
    (tmp_path / "results.txt").write_text("not a run")
    sweep = from_domainbed(tmp_path)
    assert [len(record.evaluations) for record in sweep.records] == [1, 1, 1]
    assert sweep.notes == (
        "cut: skipped 1 unreadable line",
        "cut: not done; its 1 evaluation is used",
        "empty: no evaluation",
        "nan: skipped 1 unreadable line",
        "odd: skipped 2 unreadable lines",
    )


def test_the_report_tells_what_was_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fgmix.cli import app

    write_run(tmp_path / "cut", [0], [(0, [0.5] * 8)], tail="{")
    app(["report", "--from-domainbed", str(tmp_path)], standalone_mode=False)
    printed = capsys.readouterr()
    assert printed.err == "note: cut: skipped 1 unreadable line\n"
    assert printed.out.startswith("### PACS")


def test_a_run_of_domainbeds_is_explained_without_a_command_that_would_fail(tmp_path: Path) -> None:
    write_run(tmp_path / "r", [2], [(0, [0.5] * 8)])
    lines = explain_number(read_runs(from_domainbed=tmp_path), "PACS", "erm", "photo")
    assert lines[1:4] == [
        f"  reported: {tmp_path / 'r'}",
        "    hyper-parameter sample 0",
        "    run by DomainBed with class_balanced=false, lr=5e-05, batch_size=32, resnet_dropout=0.1",
    ]


def test_domain_names(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [1], [(0, [0.5] * 6)])  # PACS with three domains is not the PACS we know
    write_run(tmp_path / "b", [5], [(0, [0.5] * 12)], dataset="RotatedMNIST", algorithm="ANDMask")
    first, second = from_domainbed(tmp_path).records
    assert first.spec.test_domains == ("env1",)
    assert (second.spec.dataset, second.spec.algorithm) == ("rotated_mnist", "andmask")
    assert second.spec.test_domains == ("75",)


def test_domains_of_benchmarks_have_domainbeds_numbers(tmp_path: Path) -> None:
    """Known by name are exactly the benchmarks' domains; Spawrious' test domain is DomainBed's first, and our last."""
    known = {name for name in BENCHMARKS if known_domains(name)}
    assert {name for name in BENCHMARKS if not BENCHMARKS[name].whole} - known == {"WILDSFMoW"}
    assert all(sorted(known_domains(name)) == list(BENCHMARKS[name].domains) for name in known)
    record = finished("Test", 0.75, domains="SC_group_1 SC_group_2 Test", dataset="SpawriousM2M_hard")
    (folder,) = to_domainbed([record], tmp_path)
    assert json.loads((folder / "results.jsonl").read_text())["args"]["test_envs"] == [0]
    (back,) = from_domainbed(tmp_path).records
    assert (back.spec.test_domains, back.test_accuracy()) == (("Test",), 0.75)


def test_not_a_sweep(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Found none"):
        from_domainbed(tmp_path / "missing")
    with pytest.raises(UserError, match="--output_dir"):
        from_domainbed(tmp_path)


def test_there_and_back(tmp_path: Path) -> None:
    records = random_sweep(datasets=1, algorithms=2, trials=1, draws=2, domains=3, pairs=True)
    folders = to_domainbed(records, tmp_path / "out")
    assert len(set(folders)) == 2 * len(records)  # raw and averaged
    assert all((folder / "done").read_text() == "done" for folder in folders)
    back = from_domainbed(tmp_path / "out")
    assert back.notes == ()
    for rule in get_args(Rule):
        ours, theirs = select(records, rule).accuracies(), select(back.records, rule).accuracies()
        assert len(theirs) == len(ours) == 2 * 2 * 3  # algorithms, models, domains
        assert theirs == ours


def test_our_study_comes_back_as_its_own_table(tmp_path: Path) -> None:
    """PACS: 132 runs of 11 arms, raw and averaged; DomainBed's own report sees each arm as an algorithm."""
    records = unpack(Path(__file__).parents[2] / "docs" / "records" / "pacs.records.xz")
    folders = to_domainbed(records, tmp_path)
    assert len(set(folders)) == 2 * len(records)
    names = {json.loads((f / "results.jsonl").read_text().splitlines()[0])["args"]["algorithm"] for f in folders}
    assert {"FGMix", "FGMix (γ = 10)", "FGMix (γ = 10) + SWA", "ERM + SWA"} <= names
    assert len(names) == 22
    ours, theirs = (report_tables(select(some)) for some in (records, from_domainbed(tmp_path).records))
    assert ours == theirs
    compared = compare(select(from_domainbed(tmp_path).records))
    assert all(each.baseline == Row("erm", model=each.row.model) for each in compared)


@pytest.mark.parametrize("arm", ["a) + SWA", "γ = 10", "(", "+ SWA"])
def test_an_arm_of_any_name_goes_there_and_back(tmp_path: Path, arm: str) -> None:
    measured = {10: {"a": (0.5, 0.5), "b": (None, 0.5)}}
    to_domainbed([run("a", measured), run("a", measured, swa=measured, arm=arm, averaging_start=7)], tmp_path)
    back = [(r.spec.arm, r.models, r.spec.averaging_start) for r in from_domainbed(tmp_path).records]
    assert sorted(back) == [("", ("raw",), 100), (arm, ("raw", "swa"), 7)]


def test_points_of_a_grid_stay_apart(tmp_path: Path) -> None:
    from fgmix.cli import app

    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for name, lam, accuracy in (("first", 1.0, 0.4), ("second", 3.0, 0.6)):
        (ours / name).mkdir(parents=True)
        write_record(finished("a", accuracy, algorithm="fgmix", settings={"lam": lam}), ours / name / "record.json")
    write_plan(ours, Plan(("first", "second"), {"lam": (1.0, 3.0)}), {})
    app(["report", str(ours), "--to-domainbed", str(theirs)], standalone_mode=False)
    found = select(from_domainbed(theirs).records).accuracies()
    assert {(*cell.row[:2],): accuracy for cell, accuracy in found.items()} == {
        ("fgmix", "λ₀ = 1"): 0.4,
        ("fgmix", "λ₀ = 3"): 0.6,
    }


def test_what_is_written(tmp_path: Path) -> None:
    record = finished("photo", 0.75, domains="art_painting cartoon photo sketch", dataset="PACS", draw=4, trial=2)
    (folder,) = to_domainbed([record], tmp_path)
    (line,) = (json.loads(text) for text in (folder / "results.jsonl").read_text().splitlines())
    assert line["args"]["dataset"] == "PACS"
    assert line["args"]["algorithm"] == "ERM"
    assert line["args"]["test_envs"] == [2]
    assert (line["args"]["hparams_seed"], line["args"]["trial_seed"]) == (4, 2)
    accuracies = {key: value for key, value in line.items() if key.endswith("_acc")}
    # the sources' train accuracy was not measured, and DomainBed's report does not read it
    assert accuracies == {
        "env0_out_acc": 0.5,
        "env1_out_acc": 0.5,
        "env2_in_acc": 0.75,
        "env2_out_acc": 0.75,
        "env3_out_acc": 0.5,
    }


def test_names_go_there_and_back(tmp_path: Path) -> None:
    """DomainBed's name in lower case is our key, whatever the label; so is the label of a method that it lacks."""
    for name in algorithms.names():
        theirs = algorithms.get(name).domainbed_name
        assert name_algorithm(theirs or algorithms.get(name).label) == name
    masked = replace(finished("a", 0.5, algorithm="andmask"), label="AND-Mask", domainbed_name="ANDMask")
    ours = replace(finished("a", 0.5, algorithm="l2a_ot"), label="L2A-OT")
    to_domainbed([masked, ours], tmp_path)
    back = {record.spec.algorithm: record.label for record in from_domainbed(tmp_path).records}
    assert back == {"andmask": "AND-Mask", "l2a_ot": "L2A-OT"}


def test_a_killed_run_is_selected_with_the_others_of_its_method(tmp_path: Path) -> None:
    """DomainBed's records hold no default of steps: a run with fewer lines must not look like another experiment."""
    write_run(tmp_path / "whole", [0], [(0, [0.5] * 8), (300, [0.6] * 8), (600, [0.6] * 8)], steps=None)
    write_run(tmp_path / "cut", [0], [(0, [0.9] * 8)], steps=None, hparams_seed=1, done=False)
    outcome = select(from_domainbed(tmp_path).records).cells[Cell("PACS", Row("erm"), 0, "art_painting")]
    assert isinstance(outcome, Selected)
    assert outcome.accuracy == 0.9


def test_a_diverged_run_is_not_done(tmp_path: Path) -> None:
    measured = {10: {"a": (0.5, 0.5), "b": (None, 0.5)}}
    broken = [run("a", measured, status="diverged"), run("b", {}, status="diverged")]
    (folder,) = to_domainbed(broken, tmp_path)  # nothing to write of the second
    assert not (folder / "done").exists()


def test_writing_twice_changes_nothing(tmp_path: Path) -> None:
    records = [finished("a", 0.5), finished("b", 0.5)]
    first = to_domainbed(records, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert to_domainbed(records, tmp_path) == first
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
