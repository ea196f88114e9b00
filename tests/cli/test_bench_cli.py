"""fgmix bench data, eval and sweep: what they print."""

from __future__ import annotations

import pytest

from cli.test_cli import call
from fgmix.timing import data, evaluation, sweep
from fgmix.timing.data import DataSpeed
from fgmix.timing.evaluation import EvaluationSpeed
from fgmix.timing.sweep import SweepSpeed
from fgmix.timing.turns import Turns

TURNS = Turns(ours=(1.0, 1.0, 1.0), theirs=(3.0, 4.0, 5.0))


def test_data_prints_a_line_for_each_size_and_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def measure(folder: object, **options: int) -> list[DataSpeed]:
        asked.append((folder, options["image_size"], options["rounds"]))
        return [DataSpeed("train", options["image_size"], 120, TURNS, host_seconds=(0.1,), decoding=0.05)]

    monkeypatch.setattr(data, "measure_data", measure)
    assert call(monkeypatch, "bench", "data", "--image-sizes", "32,96", "--rounds", "3") == 0
    assert asked == [(None, 32, 3), (None, 96, 3)]
    head, _, _, small, large = capsys.readouterr().out.splitlines()
    assert "the same images and 1 thread(s) on both sides" in head
    assert small.split() == ["train", "32", "30", "120", "4.0×", "3.0–", "5.0×", "1200", "2.0", "reads"]
    assert large.split()[1] == "96"


def test_data_refuses_sizes_that_are_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "bench", "data", "--image-sizes", "64,large") == 2
    assert "integers from 1 to 4,096 such as 64,224. Found 'large'" in capsys.readouterr().err


def test_eval_prints_a_line_for_each_size_and_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(_: object, **options: int) -> EvaluationSpeed:
        return EvaluationSpeed(options["image_size"], 120, {"two passes": TURNS, "DomainBed": TURNS})

    monkeypatch.setattr(evaluation, "measure_evaluation", measure)
    assert call(monkeypatch, "bench", "eval", "--image-sizes", "32", "--rounds", "3") == 0
    _, _, passes, theirs = capsys.readouterr().out.splitlines()
    assert passes.split() == ["32", "120", "two", "passes", "4.0×", "3.0–", "5.0×"]
    assert theirs.split()[2] == "DomainBed"


def test_sweep_prints_both_sides_and_the_cold_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sweep, "measure_sweep", lambda *_, **options: SweepSpeed(options["runs"], TURNS, 2.5))
    assert call(monkeypatch, "bench", "sweep", "--runs", "4") == 0
    head, theirs, ours, cold = capsys.readouterr().out.splitlines()
    assert head.startswith("erm on digits, 4 runs of 10 steps, 2 at a time")
    assert "60.0 runs per minute" in theirs
    assert "240.0 runs per minute, 4.00× (3.00–5.00×)" in ours
    assert "2.5 s" in cold
