"""Every benchmark runs, compares the same work on both sides, and prints what it measured."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.main import get_command
from typer.testing import CliRunner

from benchmarks import data, domainbed_run, evaluation, growth, images, networks, sweep
from benchmarks.__main__ import app
from benchmarks.data import DataSpeed, cached_domains
from benchmarks.evaluation import from_files, from_memory, in_one_pass, in_two_passes
from benchmarks.operations import count_launches
from benchmarks.policy import SIZES, Size, measure_policy, peak_memory
from benchmarks.runs import make_features, train_bare
from benchmarks.turns import Turns, by_turns
from data.pictures import make_folder
from fgmix.data import from_arrays
from fgmix.data.folders import ImageFile, scan_folder
from fgmix.errors import UserError
from fgmix.records.status import record_failure
from fgmix.sweeps.design import PlannedRun
from fgmix.training.evaluate import evaluation_mode
from sweeps.toys import make_data

ROOT = Path(__file__).resolve().parents[2]
SIZE, BATCH = 8, 16  # the pictures are 12×10, which the cache keeps as they are for 8 px
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[ImageFile]:
    """Two domains of different sizes; the second lacks a class."""
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path / "cache"))
    layout = {"art": {"cat": ["1.png", "2.png"], "dog": ["1.jpg"]}, "photo": {"dog": ["1.png", "2.jpg"]}}
    return list(scan_folder(make_folder(tmp_path / "images", layout)).files)


def test_both_sides_read_the_same_images(files: list[ImageFile]) -> None:
    """Those of training in the same batches; clean ones are equal within the rounding of two resizes."""
    domains = cached_domains(files, SIZE)
    train = data.training(domains, files, SIZE, BATCH)
    for (x, y), (x_theirs, y_theirs) in zip(train.ours(3), train.theirs(3), strict=True):
        assert x.shape == x_theirs.shape == (BATCH, 3, SIZE, SIZE)
        assert y.tolist() == y_theirs.tolist()
    evaluate = data.evaluation(domains, files, SIZE)
    ((x, y),) = evaluate.ours(0)
    x_theirs, y_theirs = (torch.cat(parts) for parts in zip(*evaluate.theirs(0)))
    assert y.tolist() == y_theirs.tolist()
    assert ((x - x_theirs) * STD).abs().max() <= 1.01 / 255


def test_all_ways_of_evaluating_give_the_same_scores(files: list[ImageFile]) -> None:
    domains, algorithm = cached_domains(files, SIZE), evaluation._algorithm("small_cnn", SIZE, 2)
    with evaluation_mode(algorithm):
        models = evaluation._models(algorithm)
        ways = in_one_pass(domains, 2), in_two_passes(domains), from_memory(domains), from_files(files, SIZE)
        ours, passes, held, theirs = (way(models) for way in ways)
    for name in ("raw", "swa"):
        for score, again, kept, domainbeds in zip(ours[name], passes[name], held[name], theirs[name], strict=True):
            assert score == pytest.approx(again, rel=1e-6)
            assert score == pytest.approx(kept, rel=1e-6)
            assert score == pytest.approx(domainbeds, abs=0.02)  # two resizes round differently


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ("data --image-sizes 8 --images 2 --batch-size 4 --rounds 3", "evaluate     8 "),
        ("eval --image-sizes 8 --images 2 --rounds 3", "DomainBed"),
        ("eval --image-sizes 8 --images 2 --rounds 3 --backbone small_cnn --models 1", "in memory"),
        ("cache --rounds 3", "images per CPU second"),
        ("layout small_cnn --image-sizes 8 --rounds 3", "train"),
        ("pieces small_cnn --image-sizes 8 --rounds 3", "small_cnn "),
        ("checkpoint --backbone small_cnn --rounds 3", "torch.save"),
        ("step erm --backbone small_cnn --image-size 8 --batch-size 2 --rounds 3", "erm "),
    ],
)
def test_a_command_prints_and_leaves_nothing_behind(
    words: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "PHOTO", (24, 18))
    monkeypatch.setattr(data, "EVALUATED", 70)
    monkeypatch.setattr(images, "SIZES", ((320, 308),))
    monkeypatch.setattr(networks, "PIXELS", 0)
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path / "cache"))
    result = CliRunner().invoke(app, words.split(), catch_exceptions=False)
    assert result.exit_code == 0
    assert printed in result.output
    assert os.environ["FGMIX_CACHE"] == str(tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_domainbeds_loop_evaluates_both_parts_of_all_domains(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y, domain = rng.random((60, 3, 8, 8), np.float32), np.arange(60) % 2, np.arange(60) // 20
    domainbed_run.train(from_arrays(x, y, domain), 4, 2, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 2, 3]
    accuracies = {f"env{d}_{part}_acc" for d in range(3) for part in ("in", "out")}
    assert lines[-1].keys() == {"step", "loss", "step_time", *accuracies}
    assert all(
        (line[name] * n).is_integer() for line in lines for name in accuracies for n in [4 if "out" in name else 16]
    )


def test_both_sides_of_a_sweep_are_timed_on_the_same_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With launchers that only pretend to train: a real process takes seconds to start."""
    calls: list[tuple[str, list[str]]] = []

    def fake(side: str):  # type: ignore[no-untyped-def]
        def launch(runs: Sequence[PlannedRun], out: Path, **_: object) -> None:
            assert not list(out.iterdir())  # else a round would only read the runs of the one before
            calls.append((side, [run.name for run in runs]))
            for run in runs:
                (out / run.name).mkdir()
                (out / run.name / "record.json").touch()

        return launch

    monkeypatch.setattr(sweep, "run_local", fake("warm"))
    monkeypatch.setattr(sweep, "one_process_each", fake("cold"))
    monkeypatch.setattr(sweep, "cold_start", lambda _: 2.5)
    words = ["sweep", "--dataset", make_data(tmp_path), "--runs", "4", "--steps", "3"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert [side for side, _ in calls] == ["warm", "cold", "cold", "warm", "warm", "cold"]
    assert all(names == calls[0][1] for _, names in calls)
    assert len(set(calls[0][1])) == 4  # three domains, and one of the second trial
    assert result.output.splitlines()[-1].split() == ["a", "cold", "start:", "2.5", "s"]


def test_a_sweep_whose_runs_fail_is_no_fast_one(tmp_path: Path) -> None:
    runs = sweep.small_runs(make_data(tmp_path), "erm", 2, 3)
    record_failure(tmp_path / runs[0].name, "ValueError: no")
    with pytest.raises(UserError, match=rf"{runs[0].name} \(ValueError: no\)"):
        sweep.require_done(runs, tmp_path)


def test_policy_steps_are_timed() -> None:
    (cost,) = measure_policy([Size(8, 3, 2)], rounds=1, memory=False)
    assert min(cost.fast, cost.literal) > 0


@pytest.mark.long
def test_targets_of_speed_and_memory_of_the_policy_step() -> None:
    """≥ 2× at 7 classes, ≥ 8× at 65; at 345 a third of the memory (the literal step there: 10 GB)."""
    small, medium = measure_policy(SIZES[:2], memory=False)
    assert small.speed_up >= 2
    assert medium.speed_up >= 8
    assert peak_memory("fast", SIZES[2]) <= peak_memory("literal", SIZES[2]) / 3


def test_ways_take_turns_and_each_gets_its_own_time() -> None:
    now, calls = [0.0], list[str]()

    def way(name: str, seconds: float):  # type: ignore[no-untyped-def]
        def work(number: int) -> None:
            calls.append(f"{name}{number}")
            now[0] += seconds * (number + 1)

        return work

    turns = by_turns(way("ours", 1), way("theirs", 3), 4, clock=lambda: now[0])
    assert turns == Turns((1, 2, 3, 4), (3, 6, 9, 12))
    assert calls == ["ours0", "theirs0", "theirs1", "ours1", "ours2", "theirs2", "theirs3", "ours3"]


def test_numbers_come_from_the_times() -> None:
    turns = Turns(ours=(1.0, 1.0, 4.0), theirs=(2.0, 5.0, 6.0))
    speed = DataSpeed("train", 64, 100, turns, host_seconds=(0.5, 0.1, 0.2), decoding=0.06)
    assert (speed.ours, speed.theirs, speed.host, speed.turns.ratio) == (100.0, 20.0, 500.0, 2.0)
    assert speed.paid_after == pytest.approx(0.06 / (0.05 - 0.01))
    slow = DataSpeed("train", 64, 100, Turns((2.0,) * 3, (1.0,) * 3), host_seconds=(1.0,), decoding=0.06)
    assert slow.paid_after == float("inf")


def test_commands_of_the_docs_parse() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    commands = [line for page in pages for line in re.findall(r"python -m benchmarks ([^`#\n]+)", page.read_text())]
    assert len(commands) > 10
    for line in commands:
        name, *words = shlex.split(line)
        command = get_command(app).commands[name]  # type: ignore[attr-defined]
        command.make_context(name, words)  # raises on an unknown option or a value of the wrong type


def test_growth_prints_a_row_for_every_setup(monkeypatch: pytest.MonkeyPatch) -> None:
    setups = [growth.Setup("erm + swa"), growth.Setup("iga", backbone="small_cnn", image_size=8)]
    monkeypatch.setattr(growth, "ROWS", {"some": setups})
    result = CliRunner().invoke(app, ["growth", "--rounds", "3"], catch_exceptions=False)
    rows = [line.split() for line in result.output.splitlines()[2:]]
    assert [row[0] for row in rows] == ["erm", "iga"]
    assert "DomainBed" in rows[1]


def test_domainbeds_iga_is_ours() -> None:
    """Both sides of the comparison do the same work."""
    setup = growth.Setup("iga")
    ours, theirs = growth.build(setup), growth.build(setup)
    step = growth.domainbed_iga(theirs)
    for _ in range(2):
        ours.step(growth.draw_batches(setup))
        step(growth.draw_batches(setup))
    for a, b in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-4)


def test_a_bare_loop_learns_what_a_run_learns() -> None:
    assert train_bare(make_features(), 100, seed=0) > 0.5


def test_launches_are_those_of_layers_losses_and_the_optimiser() -> None:
    """More parts, more launches; a second count is the same."""
    small = {"backbone": "small_cnn", "image_size": 16, "batch_size": 2}
    erm = count_launches("erm", **small)
    assert count_launches("erm", **small) == erm
    assert count_launches("coral", **small) > erm > 20
