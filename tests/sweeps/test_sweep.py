"""Sweeps: the same runs every time, only what is missing is run, nothing is run twice, nothing stops the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from copying import replace
from fgmix.data import from_arrays
from fgmix.errors import UserError
from fgmix.records.files import exclusive, write_json
from fgmix.records.packed import pack, unpack
from fgmix.records.plans import Outcome, Plan, is_locked, read_plans, state_of, write_plan
from fgmix.records.schema import RunSpec
from fgmix.records.status import read_status
from fgmix.records.store import RunBusy, read_record
from fgmix.results.collect import collect
from fgmix.sweeps.design import Sweep, plan, plan_all
from fgmix.sweeps.execute import execute, run_sweeps
from fgmix.sweeps.presets import get_preset
from fgmix.training.resolve import resolve
from fgmix.training.trunk import shared_trunks, trunk_of
from records.test_protocols import images
from sweeps.toys import QUICK, Here, make_data, records, sessions, tables, toy_sweep
from training.killed_run import toy_data


@pytest.fixture
def data(tmp_path: Path) -> str:
    return make_data(tmp_path)


def run(out: Path, *sweeps: Sweep, launch: Any = None, **options: Any) -> list[str]:
    """Names of the runs that a sweep launched."""
    here = launch or Here()
    run_sweeps(sweeps, out, here, progress=False, **options)
    ran: list[str] = here.ran
    return ran


# What is planned


def test_every_combination_once(data: str) -> None:
    runs = plan(toy_sweep(data, "erm", "coral", trials=2, hparams=3))
    assert len(runs) == len({run.name for run in runs}) == 2 * 3 * 3 * 2  # algorithms, test domains, draws, trials
    assert {run.spec.test_domains for run in runs} == {("ct",), ("mr",), ("us",)}
    assert [run.spec.trial_seed for run in runs] == [0] * 18 + [1] * 18  # whole trials first


def test_pairs_are_held_out_when_asked_for(data: str) -> None:
    held_out = [run.spec.test_domains for run in plan(toy_sweep(data, pairs=True))]
    assert held_out == [("ct",), ("mr",), ("us",), ("ct", "mr"), ("ct", "us"), ("mr", "us")]
    only = [run.spec.test_domains for run in plan(toy_sweep(data, pairs=True, test_domains=("us",)))]
    assert only == [("us",), ("ct", "us"), ("mr", "us")]  # what leave-one-domain-out needs for us


def test_methods_start_alike_and_draws_differ(data: str) -> None:
    runs = plan(toy_sweep(data, "erm", "coral", hparams=2, test_domains=("us",)))
    seeds = {(run.spec.algorithm, run.spec.hparams_seed): run.spec.seed for run in runs}
    assert seeds["erm", 0] == seeds["coral", 0] != seeds["erm", 1] == seeds["coral", 1]
    drawn = {run.spec.hparams_seed: run.spec.settings["lr"] for run in runs}
    assert drawn[0] == 1e-3 != drawn[1]


def test_what_the_user_fixes_is_not_drawn(data: str) -> None:
    common = {**QUICK, "batch_size": 5}
    runs = plan(toy_sweep(data, "erm", "coral", hparams=2, common=common, settings={"lr": 0.5, "gamma": 2.0}))
    assert {run.spec.batch_size for run in runs} == {5}
    assert {run.spec.settings["lr"] for run in runs} == {0.5}
    assert {run.spec.settings.get("gamma") for run in runs} == {None, 2.0}  # ERM has no γ


def test_a_grid_is_every_combination_and_a_method_without_its_settings_runs_once(data: str) -> None:
    sweep = toy_sweep(data, "erm", "fgmix", test_domains=("us",), grid={"lam": (1.0, 3.0), "alpha": (0.1, 0.3)})
    runs = plan(sweep)
    points = [(r.spec.settings["lam"], r.spec.settings["alpha"]) for r in runs if r.spec.algorithm == "fgmix"]
    assert points == [(1.0, 0.1), (1.0, 0.3), (3.0, 0.1), (3.0, 0.3)]
    assert len(runs) == 5


def test_a_frozen_backbone_is_searched_as_features_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample 0 has the learning rate of `fgmix train --frozen`; images' own is a twentieth."""
    monkeypatch.setattr("fgmix.sweeps.design.load_dataset", lambda *_, **__: images())
    (tmp_path / "weights.pt").write_bytes(b"w")
    frozen = {"frozen": True, "backbone": "small_cnn", "weights": str(tmp_path / "weights.pt")}
    sweep = Sweep(datasets=("PACS",), algorithms=("erm",), trials=1, hparams=4, space="paper", common=frozen)
    rates = [resolve(spec, data).settings["lr"] for spec, data in sweep.generate_specs()]
    alone = resolve(RunSpec(dataset="PACS", algorithm="erm", test_domains="2", **frozen), images())
    assert rates[0] == alone.settings["lr"] == 1e-3
    assert set(rates) <= {2e-4, 6e-4, 1e-3}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"trials": 0}, "`trials` should be a positive integer"),
        ({"hparams": 0}, "`hparams` should be a positive integer"),
        ({"test_domains": ("uss",)}, "Expected a domain of scans"),
        ({"test_domains": ("us", "mrr")}, "Did you mean 'mr'?"),
        ({"space": "domainbad"}, "Did you mean 'domainbed'?"),
        ({"settings": {"lr": "fast"}}, "`lr` should be a positive number"),
    ],
)
def test_mistakes_are_told_before_anything_runs(
    data: str, tmp_path: Path, fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence.replace("?", r"\?")):
        run(tmp_path / "out", toy_sweep(data, **fields))
    assert not list((tmp_path / "out").glob("scans-*"))


# What is run


def test_records_of_another_machine_are_not_trained_again(data: str, tmp_path: Path) -> None:
    """A packed file takes the place of the folders; runs that the sweep does not have are left in it."""
    run(tmp_path / "there", toy_sweep(data, "erm", "coral"))
    pack(collect(tmp_path / "there").records, packed := tmp_path / "study.records.xz")
    ran = run(out := tmp_path / "here", toy_sweep(data, "erm", trials=2), finished=unpack(packed))
    before, after = records(tmp_path / "there"), records(out)
    assert len(ran) == 3  # the second trial alone
    assert {name for name in after if name not in ran} == {name for name in before if "erm" in name}
    assert all(after[name] == before[name] for name in after if name not in ran)


def test_started_twice_runs_once_and_an_algorithm_added_later_runs_alone(data: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert len(run(out, toy_sweep(data))) == 3
    before = records(out)
    assert run(out, toy_sweep(data)) == []
    added = run(out, toy_sweep(data, "erm", "coral"))
    assert len(added) == 3
    assert all(name.startswith("scans-coral-") for name in added)
    assert before.items() <= records(out).items()
    assert {name for plan in read_plans(out) for name in plan.runs} == set(records(out))


def test_an_interrupted_sweep_goes_on_and_its_tables_are_those_of_an_undisturbed_one(data: str, tmp_path: Path) -> None:
    class Interrupted(Here):
        """Stops after two runs, as Ctrl-C would."""

        def __call__(self, runs: Any, out: Path, report: Any) -> list[Outcome]:
            super().__call__(runs[:2], out, report)
            raise KeyboardInterrupt

    sweep = toy_sweep(data, "erm", "coral")
    run(tmp_path / "whole", sweep)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", sweep, launch=Interrupted())
    assert read_status(tmp_path / "out").counts == {"done": 2, "waiting": 4}
    assert len(run(tmp_path / "out", sweep)) == 4
    assert records(tmp_path / "out") == records(tmp_path / "whole")
    assert tables(tmp_path / "out") == tables(tmp_path / "whole")


def test_two_sweeps_share_runs(data: str, tmp_path: Path) -> None:
    assert len(run(tmp_path / "out", toy_sweep(data), toy_sweep(data, "erm", "coral"))) == 6


def test_what_another_process_works_on_is_left_to_it(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep runs the others, then waits; when the other process ends without a result, it takes the run."""
    out = tmp_path / "out"
    first, *others = [planned.name for planned in plan(toy_sweep(data))]
    (out / first).mkdir(parents=True)
    lock = exclusive(out / first / ".lock", RunBusy("held"))
    lock.__enter__()
    slept = []

    def released_while_asleep(seconds: float) -> None:
        assert sorted(records(out)) == sorted(others)
        assert state_of(out / first) == "running"
        slept.append(seconds)
        lock.__exit__(None, None, None)

    monkeypatch.setattr("fgmix.sweeps.execute.time.sleep", released_while_asleep)
    assert run(out, toy_sweep(data)) == [*others, first]
    assert len(slept) == 1


def test_a_run_taken_between_plan_and_start_is_busy(data: str, tmp_path: Path) -> None:
    planned = plan(toy_sweep(data))[0]
    (tmp_path / planned.name).mkdir()
    with exclusive(tmp_path / planned.name / ".lock", RunBusy("held")):
        assert execute(planned, str(tmp_path), "cpu").status == "busy"
    assert state_of(tmp_path / planned.name) == "waiting"


def test_a_launcher_that_does_nothing_is_an_error_not_a_loop(data: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="ended without one"):
        run_sweeps([toy_sweep(data)], tmp_path / "out", lambda *_: [], progress=False)


# What fails


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> dict[str, Exception]:
    """Test domains whose runs fail, with the error."""
    from fgmix.sweeps import execute as module

    fit, errors = module.train, dict[str, Exception]()

    def failing_fit(spec: Any, *args: Any, **options: Any) -> Any:
        if error := errors.get(spec.test_domains[0]):
            raise error
        return fit(spec, *args, **options)

    monkeypatch.setattr(module, "train", failing_fit)
    return errors


def test_a_failure_is_recorded_and_stops_nothing_and_is_retried_on_demand(
    data: str, tmp_path: Path, failing: dict[str, Exception]
) -> None:
    out = tmp_path / "out"
    failing["mr"] = RuntimeError("the disk is full")
    result = run_sweeps([toy_sweep(data)], out, Here(), progress=False)
    (bad,) = result.failed
    assert len(result.done) == 2
    recorded = json.loads((out / bad / "error.json").read_text())
    assert recorded["error"] == "RuntimeError: the disk is full"
    assert "failing_fit" in recorded["traceback"]
    status = read_status(out)
    assert status.counts == {"done": 2, "failed": 1}
    assert status.lines()[1:] == [f"failed: {bad}: RuntimeError: the disk is full"]

    assert run(out, toy_sweep(data)) == []  # not by itself
    assert run(out, toy_sweep(data), retry_failed=True) == [bad]  # and fails again
    assert state_of(out / bad) == "failed"
    failing.clear()
    assert run(out, toy_sweep(data), retry_failed=True) == [bad]
    assert state_of(out / bad) == "done"


def test_a_run_that_failed_in_another_sweep_meanwhile_is_not_tried_again(
    data: str, tmp_path: Path, failing: dict[str, Exception]
) -> None:
    planned = plan(toy_sweep(data))[0]
    failing["ct"] = RuntimeError("no")
    assert execute(planned, str(tmp_path), "cpu").status == "failed"
    failing.clear()
    again = execute(planned, str(tmp_path), "cpu")
    assert again == Outcome(planned.name, "failed", "RuntimeError: no")


@pytest.mark.parametrize("moment", ["resolve", "failed"])
def test_two_sweeps_at_once_try_a_failing_run_once(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The other process comes while this one has loaded the data, or has failed and not recorded it yet."""
    from fgmix.sweeps import execute as module

    planned, tried, others = plan(toy_sweep(data))[0], list[str](), list[Outcome]()
    arguments = planned, str(tmp_path), "cpu"
    original = getattr(module, moment)

    def failing_fit(*_: Any, **__: Any) -> None:
        tried.append(planned.name)
        raise RuntimeError("no")

    def interrupted(*args: Any) -> Any:
        monkeypatch.setattr(module, moment, original)
        others.append(execute(*arguments))
        return original(*args)

    monkeypatch.setattr(module, "train", failing_fit)
    monkeypatch.setattr(module, moment, interrupted)
    assert execute(*arguments) == Outcome(planned.name, "failed", "RuntimeError: no")
    assert [other.status for other in others] == ["busy"]
    assert tried == [planned.name]


def test_data_that_changed_since_the_plan_is_a_failure_not_another_run(data: str, tmp_path: Path) -> None:
    planned = plan(toy_sweep(data))[0]
    from fgmix.sweeps.execute import _load_dataset

    _load_dataset.cache_clear()
    make_data(tmp_path, seed=1)
    outcome = execute(planned, str(tmp_path), "cpu")
    assert outcome.status == "failed"
    assert "Plan the sweep again" in outcome.error
    _load_dataset.cache_clear()


def test_a_diverged_run_is_finished(data: str, tmp_path: Path) -> None:
    sweep = toy_sweep(data, settings={"lr": 1e30}, test_domains=("us",))
    run(tmp_path / "out", sweep)
    assert read_status(tmp_path / "out").counts == {"diverged": 1}
    assert run(tmp_path / "out", sweep) == []


# Where it stands


def test_states_follow_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert state_of(folder) == "waiting"
    folder.mkdir()
    with exclusive(folder / ".lock", RunBusy("held")):
        assert state_of(folder) == "running"
    assert not is_locked(folder)
    write_json(folder / "error.json", {"traceback": ""})
    assert state_of(folder) == "failed"
    with exclusive(folder / ".lock", RunBusy("held")):
        assert state_of(folder) == "running"  # tried again
    write_json(folder / "record.json", {"status": "done"})
    assert state_of(folder) == "done"
    write_json(folder / "record.json", {"status": "diverged"})
    assert state_of(folder) == "diverged"


def test_status_tells_rate_and_time_left(data: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    names = [planned.name for planned in plan(toy_sweep(data))]
    here = Here()
    run(out, toy_sweep(data, test_domains=("ct", "mr")), launch=here)
    for name, seconds in zip(here.ran, ([30, 50], [40])):
        (out / name / "sessions.jsonl").write_text("".join(f'{{"seconds": {s}}}\n' for s in seconds))
    with pytest.raises(UserError, match="ended without one"):
        run_sweeps([toy_sweep(data)], out, lambda *_: [], progress=False)  # notes its plan, runs nothing
    status = read_status(out)
    assert status.counts == {"done": 2, "waiting": 1}
    assert status.seconds_a_run == 60
    assert status.lines() == [
        "2 done, 0 diverged, 0 running, 0 failed, 1 waiting",
        "1 min per run, 1 at a time, 60 runs per hour; about 1 min left",
    ]
    (out / names[0] / "record.json").unlink()  # a later look does not read again what was finished
    assert read_status(out, status).counts == status.counts
    assert read_status(out).counts == {"done": 1, "waiting": 2}


def test_half_a_line_of_a_session_is_passed_over(data: str, tmp_path: Path) -> None:
    """A power cut may leave one: the end of the last line, or zeros in its place."""
    (name,) = run(tmp_path, toy_sweep(data, test_domains=("ct",)))
    torn = b'{"seconds": 30}\n{"seconds": 12}\n\0\0\xff\n3\n{"first_step": 4}\n{"seconds": 9'
    (tmp_path / name / "sessions.jsonl").write_bytes(torn)
    write_plan(tmp_path, Plan(("another",), {}), {})  # the time is read where a run is left that will take as long
    assert read_status(tmp_path).worked == {name: 42}


def test_no_sweep_no_status(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no plan"):
        read_status(tmp_path)


def test_trials_that_draw_their_own_data_are_planned_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """rotated_mnist partitions anew in every trial: each trial's runs are named by its own data."""
    y, domain = np.arange(60) % 3, np.arange(60) // 20

    def load_trial(spec: Any, **_: Any) -> Any:
        return from_arrays(np.full((60, 2), float(spec.trial_seed)), y, domain, name="drawn")

    monkeypatch.setattr("fgmix.sweeps.design.load_dataset", load_trial)
    both = plan(Sweep(datasets=("drawn",), algorithms=("erm",), trials=2, hparams=1, test_domains=("0",)))
    assert len({run.name for run in both}) == 2
    assert replace(both[0].spec, trial_seed=1, seed=both[1].spec.seed) == both[1].spec


# Shared trunks


def test_an_ablation_costs_at_most_half_and_its_records_are_the_same(data: str, tmp_path: Path) -> None:
    methods = ("erm", "fgmix_a", "fgmix_d", "fgmix")
    longer = toy_sweep(data, *methods, test_domains=("us",), common={**QUICK, "steps": 20})
    run(tmp_path / "shared", longer)
    for planned in plan(longer):
        execute(replace(planned, trunk=0), str(tmp_path / "alone"), "cpu")
    assert records(tmp_path / "shared") == records(tmp_path / "alone")
    assert {planned.trunk for planned in plan(longer)} == {11}
    shared, alone = (
        sum(session["last_step"] - session["first_step"] for session in sessions(tmp_path / place))
        for place in ("shared", "alone")
    )
    assert (shared, alone) == (4 * 9, 4 * 20)  # and the trunk's own 11, once
    assert list((tmp_path / "shared" / "trunks").iterdir()) == [], "a sweep that is done needs no trunk"


def test_a_sweep_that_is_done_keeps_the_trunks_of_others(data: str, tmp_path: Path) -> None:
    """Two sweeps on one folder: one has runs left when the other ends, and need not train its trunk again."""
    methods, common = ("erm", "fgmix_a"), {**QUICK, "steps": 20}
    first, second = (toy_sweep(data, *methods, test_domains=(name,), common=common) for name in ("us", "mr"))
    waiting = plan(second)
    write_plan(tmp_path / "out", Plan(tuple(planned.name for planned in waiting), {}), {})
    execute(waiting[0], str(tmp_path / "out"), "cpu")
    (trunk,) = (tmp_path / "out" / "trunks").iterdir()
    run(tmp_path / "out", first)
    assert trunk.is_dir()
    run(tmp_path / "out", second)
    assert list((tmp_path / "out" / "trunks").iterdir()) == []


@pytest.mark.parametrize(("preset_name", "runs"), [("paper-ablation", 8), ("paper-sensitivity", 16)])
def test_the_papers_designs_cost_at_most_half(preset_name: str, runs: int) -> None:
    """By steps, for one trial and test domain; ERM stands beside the seven variants."""
    sweep = get_preset(preset_name).sweeps[0]
    algorithms = ("erm", *sweep.algorithms) if preset_name == "paper-ablation" else sweep.algorithms
    specs = [
        resolve(RunSpec(dataset="", algorithm=name, test_domains="2", steps=5000, settings=point), toy_data())
        for name in algorithms
        for point in sweep.list_points()
    ]
    assert len(specs) == runs
    trunks = shared_trunks(specs)
    steps = sum(spec.steps - trunks[spec.name] for spec in specs)
    once = {(trunk_of(spec).name, trunks[spec.name]) for spec in specs}
    assert steps + sum(length for _, length in once) <= 5000 * runs / 2


def test_runs_that_nothing_is_shared_with_have_no_trunk(data: str) -> None:
    assert {planned.trunk for planned in plan(toy_sweep(data, "erm", "coral"))} == {0}
    assert {planned.trunk for planned in plan(toy_sweep(data, "fgmix"))} == {0}


def test_arms_of_one_method_share_trunks_and_run_trial_by_trial(data: str, tmp_path: Path) -> None:
    """Arms are sweeps of their own, with settings of their own; what they train alike is trained once."""
    common = {**QUICK, "steps": 20}
    erm = toy_sweep(data, "erm", "fgmix", test_domains=("us",), trials=2, common=common)
    arm = toy_sweep(
        data, "fgmix", test_domains=("us",), trials=2, common={**common, "arm": "γ = 10"}, settings={"gamma": 10.0}
    )
    planned = plan_all([erm, arm])
    assert {each.trunk for runs in planned for each in runs} == {11}
    launched = Here()
    run_sweeps([erm, arm], tmp_path, launched, progress=False)
    trials = [read_record(tmp_path / name).spec.trial_seed for name in launched.ran]
    assert trials == [0, 0, 0, 1, 1, 1]
    text = tables(tmp_path)
    assert "FGMix (γ = 10)" in text
    assert "FGMix " in text.replace("FGMix (γ = 10)", "")
