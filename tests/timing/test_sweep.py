"""The measurement of sweeps: both sides end the same runs, and the numbers are what they say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from fgmix.errors import UserError
from fgmix.records.plans import failed
from fgmix.sweeps.design import PlannedRun
from fgmix.sweeps.launchers.local import run_local
from fgmix.timing import sweep
from fgmix.timing.sweep import SweepSpeed, measure_sweep, one_process_each, require_done, small_runs
from fgmix.timing.turns import Turns
from sweeps.toys import make_data, records


def test_both_sides_end_with_the_same_records(tmp_path: Path) -> None:
    runs = small_runs(make_data(tmp_path), "erm", 1, 3)
    run_local(runs, tmp_path / "warm", devices=["cpu"])
    one_process_each(runs, tmp_path / "cold", workers=1, threads=1)
    require_done(runs, tmp_path / "cold")
    assert records(tmp_path / "warm") == records(tmp_path / "cold")
    assert len(records(tmp_path / "warm")) == 1


def test_runs_beyond_the_domains_are_those_of_more_trials(tmp_path: Path) -> None:
    """There are three domains."""
    runs = small_runs(make_data(tmp_path), "erm", 5, 3)
    assert [(run.spec.trial_seed, *run.spec.test_domains) for run in runs] == [
        (0, "ct"), (0, "mr"), (0, "us"), (1, "ct"), (1, "mr"),
    ]  # fmt: skip
    assert {run.spec.steps for run in runs} == {3}


def test_both_sides_are_timed_on_the_same_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, tuple[object, ...]]] = []

    def fake(side: str):  # type: ignore[no-untyped-def]
        def launch(runs: Sequence[PlannedRun], out: Path, *, workers: int, **_: object) -> None:
            assert not list(out.iterdir())  # else a round would only read the runs of the one before
            calls.append((side, (workers, *(run.name for run in runs))))
            for run in runs:
                (out / run.name).mkdir()
                (out / run.name / "record.json").touch()

        return launch

    monkeypatch.setattr(sweep, "run_local", fake("warm"))
    monkeypatch.setattr(sweep, "one_process_each", fake("cold"))
    starts = iter([3.0, 9.0, 4.0])
    monkeypatch.setattr(sweep, "cold_start", lambda _: next(starts))
    speed = measure_sweep(make_data(tmp_path), runs=2, steps=3, workers=2, rounds=3)
    assert [side for side, _ in calls] == ["warm", "cold", "cold", "warm", "warm", "cold"]
    assert len({what for _, what in calls}) == 1
    assert (speed.runs, speed.cold_start) == (2, 4.0)


def test_numbers_come_from_the_times() -> None:
    speed = SweepSpeed(16, Turns(ours=(40.0, 30.0, 60.0), theirs=(80.0, 90.0, 90.0)), cold_start=3.0)
    assert (speed.ours, speed.theirs) == (24.0, pytest.approx(10.67, abs=0.01))
    assert speed.turns.ratio == 2.0


def test_a_sweep_whose_runs_fail_is_no_fast_one(tmp_path: Path) -> None:
    runs = small_runs(make_data(tmp_path), "erm", 2, 3)
    failed(tmp_path / runs[0].name, "ValueError: no")
    with pytest.raises(UserError, match=rf"Found 2 that did not, such as {runs[0].name} \(ValueError: no\)"):
        require_done(runs, tmp_path)


@pytest.mark.parametrize("name", ["runs", "workers"])
def test_bad_numbers_are_named(name: str) -> None:
    with pytest.raises(UserError, match=f"`{name}` should be a positive integer. Found 0"):
        measure_sweep(**{name: 0})
