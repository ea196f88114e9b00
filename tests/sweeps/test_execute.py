"""Sweeps run only what is missing, nothing twice, and one failure does not stop the others."""

from __future__ import annotations

import json
import os
import shutil
import signal
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from copying import replace
from fgmix.errors import MachineError, UserError
from fgmix.records.locks import hold_lock
from fgmix.records.status import Outcome, Plan, read_plans, read_status, state_of, write_plan
from fgmix.records.store import RunBusy, pack, unpack
from fgmix.results.read import read_runs
from fgmix.sweeps import execute as module
from fgmix.sweeps.design import PlannedRun, Sweep, plan, plan_all
from fgmix.sweeps.execute import _load_dataset, execute, run_sweeps
from fgmix.training import loop
from sweeps.toys import QUICK, Here, Refuse, make_data, records, sessions, tables, toy_sweep


@pytest.fixture(scope="module")
def finished(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed sweep of ERM, one run per test domain."""
    run(out := tmp_path_factory.mktemp("finished"), toy_sweep(data))
    return out


def run(out: Path, *sweeps: Sweep, launch: Here | None = None, **options: Any) -> list[str]:
    """Names of the runs that a sweep launched."""
    launch = launch or Here()
    run_sweeps(sweeps, out, launch, progress=False, **options)
    return launch.ran


# What is run


def test_records_of_another_machine_are_not_trained_again(data: str, finished: Path, tmp_path: Path) -> None:
    """A packed file takes the place of the folders; runs that the sweep does not have are left in it."""
    pack(read_runs(finished).records, packed := tmp_path / "study.records.xz")
    sweep = toy_sweep(data, test_domains=("us",), trials=2)
    ran = run(out := tmp_path / "here", sweep, finished=unpack(packed), launch=Refuse())
    ((name, record),) = records(out).items()
    assert [planned.name for planned in plan(sweep)] == [name, *ran]  # the second trial alone is run
    assert record == records(finished)[name]


def test_started_twice_runs_once_and_an_algorithm_added_later_runs_alone(data: str, tmp_path: Path) -> None:
    erm, both = (toy_sweep(data, *names, test_domains=("us",)) for names in (("erm",), ("erm", "coral")))
    assert len(run(tmp_path, erm)) == 1
    before = records(tmp_path)
    assert run(tmp_path, erm) == []
    (added,) = run(tmp_path, both)
    assert added.startswith("scans-coral-")
    assert before.items() <= records(tmp_path).items()
    assert {name for plan in read_plans(tmp_path) for name in plan.runs} == set(records(tmp_path))


def test_an_interrupted_sweep_goes_on_and_its_tables_are_those_of_an_undisturbed_one(
    data: str, finished: Path, tmp_path: Path
) -> None:
    class Interrupted(Here):
        """Stops after a run, as Ctrl-C would."""

        def __call__(self, runs: Sequence[PlannedRun], out: Path, report: Any) -> list[Outcome]:
            super().__call__(runs[:1], out, report)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, toy_sweep(data), launch=Interrupted())
    assert read_status(tmp_path).counts == {"done": 1, "waiting": 2}
    assert len(run(tmp_path, toy_sweep(data))) == 2
    assert records(tmp_path) == records(finished)
    assert tables(tmp_path) == tables(finished)


def test_two_sweeps_share_runs(data: str, tmp_path: Path) -> None:
    assert len(run(tmp_path, toy_sweep(data), toy_sweep(data, "erm", "coral"), launch=Refuse())) == 6


def test_what_another_process_works_on_is_left_to_it(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep runs the others, then waits; when the other process ends without a result, it takes the run."""
    first, *others = [planned.name for planned in plan(toy_sweep(data))]
    (tmp_path / first).mkdir(parents=True)
    lock = hold_lock(tmp_path / first / ".lock", RunBusy("held"))
    lock.__enter__()
    slept = []

    def released_while_asleep(seconds: float) -> None:
        assert [state_of(tmp_path / name) for name in (first, *others)] == ["running", "failed", "failed"]
        slept.append(seconds)
        lock.__exit__(None, None, None)

    monkeypatch.setattr("fgmix.sweeps.execute.time.sleep", released_while_asleep)
    assert run(tmp_path, toy_sweep(data), launch=Refuse()) == [*others, first]
    assert len(slept) == 1


@pytest.mark.parametrize("lock", [".lock", ".attempt"])
def test_a_run_taken_between_plan_and_start_is_busy(data: str, tmp_path: Path, lock: str) -> None:
    planned = plan(toy_sweep(data))[0]
    (tmp_path / planned.name).mkdir()
    with hold_lock(tmp_path / planned.name / lock, RunBusy("held")):
        assert execute(planned, str(tmp_path), "cpu").status == "busy"
    assert state_of(tmp_path / planned.name) == "waiting"


def test_a_launcher_that_does_nothing_is_an_error_not_a_loop(data: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="ended without one"):
        run_sweeps([toy_sweep(data)], tmp_path, lambda *_: [], progress=False)


def test_nothing_runs_before_all_sweeps_are_planned(data: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="`lr`"):
        run(tmp_path, toy_sweep(data), toy_sweep(data, settings={"lr": "fast"}))
    assert not list(tmp_path.glob("scans-*"))


# What fails


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> dict[str, Exception]:
    """Test domains whose runs fail, with the error."""
    train, errors = module.train, dict[str, Exception]()

    def failing_train(spec: Any, *args: Any, **options: Any) -> Any:
        if error := errors.get(spec.test_domains[0]):
            raise error
        return train(spec, *args, **options)

    monkeypatch.setattr(module, "train", failing_train)
    return errors


def test_a_failure_is_recorded_and_stops_nothing_and_is_retried_on_demand(
    data: str, tmp_path: Path, failing: dict[str, Exception]
) -> None:
    sweep = toy_sweep(data, test_domains=("ct", "mr"))
    failing["ct"] = RuntimeError("the disk is full")
    result = run_sweeps([sweep], tmp_path, Here(), progress=False)
    (bad,) = result.failed
    assert len(result.done) == 1
    recorded = json.loads((tmp_path / bad / "error.json").read_text())
    assert recorded["error"] == "RuntimeError: the disk is full"
    assert "failing_train" in recorded["traceback"]
    status = read_status(tmp_path)
    assert status.counts == {"done": 1, "failed": 1}
    assert status.lines()[1:] == [f"failed: {bad}: RuntimeError: the disk is full"]

    assert run(tmp_path, sweep) == []  # not by itself
    assert run(tmp_path, sweep, retry_failed=True) == [bad]  # and fails again
    assert state_of(tmp_path / bad) == "failed"
    failing.clear()
    assert run(tmp_path, sweep, retry_failed=True) == [bad]
    assert state_of(tmp_path / bad) == "done"


def test_a_run_that_failed_in_another_sweep_meanwhile_is_not_tried_again(
    data: str, tmp_path: Path, failing: dict[str, Exception]
) -> None:
    planned = plan(toy_sweep(data))[0]
    failing["ct"] = RuntimeError("no")
    assert execute(planned, str(tmp_path), "cpu").status == "failed"
    failing.clear()
    assert execute(planned, str(tmp_path), "cpu") == Outcome(planned.name, "failed", "RuntimeError: no")


@pytest.mark.parametrize("moment", ["resolve", "record_failure"])
def test_two_sweeps_at_once_try_a_failing_run_once(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The other process comes while this one has loaded the data, or has failed and not recorded it yet."""
    planned, tried, others = plan(toy_sweep(data))[0], list[str](), list[Outcome]()
    arguments = planned, str(tmp_path), "cpu"
    original = getattr(module, moment)

    def failing_train(*_: Any, **__: Any) -> None:
        tried.append(planned.name)
        raise RuntimeError("no")

    def interrupted(*args: Any) -> Any:
        monkeypatch.setattr(module, moment, original)
        others.append(execute(*arguments))
        return original(*args)

    monkeypatch.setattr(module, "train", failing_train)
    monkeypatch.setattr(module, moment, interrupted)
    assert execute(*arguments) == Outcome(planned.name, "failed", "RuntimeError: no")
    assert [other.status for other in others] == ["busy"]
    assert tried == [planned.name]


def test_a_folder_without_locks_fails_the_run(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: Any) -> Any:
        raise UserError("Expected a filesystem with file locks.")

    monkeypatch.setattr(module, "hold_lock", no_locks)
    planned = plan(toy_sweep(data))[0]
    assert execute(planned, str(tmp_path), "cpu").status == "failed"
    assert state_of(tmp_path / planned.name) == "failed"


def test_data_that_changed_since_the_plan_is_a_failure_not_another_run(tmp_path: Path) -> None:
    planned = plan(toy_sweep(make_data(tmp_path)))[0]
    _load_dataset.cache_clear()
    make_data(tmp_path, seed=1)
    outcome = execute(planned, str(tmp_path), "cpu")
    assert outcome.status == "failed"
    assert "Plan the sweep again" in outcome.error


def test_a_diverged_run_is_finished(data: str, tmp_path: Path) -> None:
    sweep = toy_sweep(data, settings={"lr": 1e30}, test_domains=("us",))
    run(tmp_path, sweep)
    assert read_status(tmp_path).counts == {"diverged": 1}
    assert run(tmp_path, sweep) == []


# Shared trunks

LONGER = {**QUICK, "steps": 20}


def test_runs_that_share_a_trunk_cost_less_and_have_the_same_records(data: str, tmp_path: Path) -> None:
    sweep = toy_sweep(data, "erm", "fgmix_a", "fgmix", test_domains=("us",), common=LONGER)
    run(tmp_path / "shared", sweep)
    for planned in plan(sweep):
        execute(replace(planned, trunk=0), str(tmp_path / "alone"), "cpu")
    assert records(tmp_path / "shared") == records(tmp_path / "alone")
    assert {planned.trunk for planned in plan(sweep)} == {11}
    shared, alone = (
        sum(session["last_step"] - session["first_step"] for session in sessions(tmp_path / place))
        for place in ("shared", "alone")
    )
    assert (shared, alone) == (3 * 9, 3 * 20)  # and the trunk's own 11, once
    assert list((tmp_path / "shared" / "trunks").iterdir()) == [], "a sweep that is done needs no trunk"


def test_a_sweep_that_is_done_keeps_the_trunks_of_others(data: str, tmp_path: Path) -> None:
    """Two sweeps on one folder: one has runs left when the other ends, and need not train its trunk again."""
    first, second = (toy_sweep(data, "erm", "fgmix_a", test_domains=(name,), common=LONGER) for name in ("us", "mr"))
    waiting = plan(second)
    write_plan(tmp_path, Plan(tuple(planned.name for planned in waiting), {}), {})
    execute(waiting[0], str(tmp_path), "cpu")
    (trunk,) = (tmp_path / "trunks").iterdir()
    run(tmp_path, first, launch=Refuse())
    assert trunk.is_dir()
    run(tmp_path, second, launch=Refuse())
    assert list((tmp_path / "trunks").iterdir()) == []


def test_arms_of_one_algorithm_share_trunks_and_run_trial_by_trial(data: str, tmp_path: Path) -> None:
    """Arms are sweeps of their own, with settings of their own; the steps that they share are trained once."""
    erm = toy_sweep(data, "erm", "fgmix", test_domains=("us",), trials=2, common=LONGER)
    arm = replace(erm, algorithms=("fgmix",), common={**LONGER, "arm": "γ = 10"}, settings={"gamma": 10.0})
    planned = {each.name: each for runs in plan_all([erm, arm]) for each in runs}
    assert {each.trunk for each in planned.values()} == {11}
    ran = run(tmp_path, erm, arm, launch=Refuse())
    assert [planned[name].spec.trial_seed for name in ran] == [0, 0, 0, 1, 1, 1]


# What a worker keeps after a run: nothing but the data


def signalled(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def raising(kind: type[Exception]) -> Any:
    def act(*_: Any) -> None:
        raise kind("no")

    return act


@pytest.mark.parametrize(
    ("status", "act"),
    [
        ("done", lambda *_: None),
        ("failed", raising(RuntimeError)),
        ("waiting", raising(MachineError)),
        ("stopped", signalled),
    ],
)
def test_memory_is_free_after_a_run(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, act: Any
) -> None:
    models, build, step = list[Any](), loop.build_algorithm, loop._Loop._step

    def noted(*args: Any) -> Any:
        model = build(*args)
        model.itself = weakref.proxy(model), lambda: model  # a cycle, as hooks make them
        models.append(weakref.ref(model))
        return model

    def acting(self: Any, batches: Any) -> None:
        step(self, batches)
        act()

    monkeypatch.setattr(loop, "build_algorithm", noted)
    monkeypatch.setattr(loop._Loop, "_step", acting)
    run = plan(toy_sweep(data))[0]
    assert execute(run, str(tmp_path), "cpu").status == status
    assert [model() for model in models] == [None]


# Other code of a method


def test_finished_runs_of_older_code_are_counted_in_a_note(
    data: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, out := tmp_path / "out")
    assert run(out, toy_sweep(data)) == []
    assert "note" not in capsys.readouterr().err
    monkeypatch.setattr(module, "describe_code", lambda _: "edited")
    assert run(out, toy_sweep(data)) == []
    assert "note: 3 finished runs are of older code of erm" in capsys.readouterr().err
    assert run(out, toy_sweep(data), accept_code=True) == []
    assert "note" not in capsys.readouterr().err


def test_checkpoints_of_other_code_stop_a_sweep_before_it_starts(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, here = toy_sweep(data, test_domains=("us",)), Here()
    with monkeypatch.context() as patch:
        patch.setattr(loop._Loop, "finish", lambda *_: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, sweep)
    monkeypatch.setattr(module, "describe_code", lambda _: "edited")
    monkeypatch.setattr(loop, "describe_code", lambda _: "edited")
    with pytest.raises(UserError, match="other code of erm"):
        run(tmp_path, sweep, launch=here)
    assert here.ran == []
    (name,) = run(tmp_path, sweep, accept_code=True)
    assert json.loads((tmp_path / name / "record.json").read_text())["code"].endswith(", then edited")
