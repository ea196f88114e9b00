"""The folder of sweeps, or of single runs: the plans, the state of each run, and the status of all. No torch."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from fgmix.errors import MachineError, UserError, to_user_error
from fgmix.progress import format_duration
from fgmix.records.digests import open_entry
from fgmix.records.files import check_path, make_folder, read_bytes, read_json, read_lines, write_json
from fgmix.records.locks import is_held, is_held_elsewhere
from fgmix.records.store import SPEC, RunFolder

State = Literal["done", "diverged", "running", "failed", "waiting"]
ORDER: tuple[State, ...] = ("done", "diverged", "running", "failed", "waiting")
FINISHED: tuple[State, ...] = ("done", "diverged")
STEPS = ".steps"  # folder of the files that say where workers are
STALE_SECONDS = 120  # after which such a file is that of a dead worker, or of one in a long evaluation
COST_FILE = "cost.json"  # times per step, measured by `python -m benchmarks step --out`


@dataclass(frozen=True)
class Plan:
    """The plan of a sweep."""

    runs: tuple[str, ...]  # names of its runs
    grid: Mapping[str, tuple[Any, ...]]  # its grid, as in `Sweep`; empty without one
    test_domains: tuple[str, ...] | None = None  # the domains that it holds out; None for all of each dataset


def write_plan(out: Path, plan: Plan, sweep: Mapping[str, Any]) -> None:
    """Write the plan of a sweep, from which `status` lists the runs that wait, and `report` those that belong together.

    Args:
        out: the sweep's folder.
        plan: the plan.
        sweep: the sweep itself as plain values, of which `test_domains` is read again.
    """
    # A list of pairs keeps the grid's order, which is the order of its table.
    content = {"runs": list(plan.runs), "grid": list(plan.grid.items()), "sweep": sweep}
    digest = hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=6).hexdigest()
    write_json(make_folder(out / "sweeps") / f"{digest}.json", content)


def read_plans(out: Path) -> list[Plan]:
    """Read the plans of all sweeps in this folder."""
    return [_read_plan(file) for file in sorted((out / "sweeps").glob("*.json"))]


def _read_plan(file: Path) -> Plan:
    try:
        content = read_json(file)
        grid = {name: tuple(values) for name, values in content["grid"]}
        domains = dict(content["sweep"]).get("test_domains")
        plan = Plan(tuple(map(str, content["runs"])), grid, None if domains is None else tuple(map(str, domains)))
        if not all(map(_is_name, plan.runs)) or any(
            isinstance(v, list | dict) for each in plan.grid.values() for v in each
        ):
            raise ValueError("not the plan of a sweep")
        return plan
    except MachineError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"Expected the plan of a sweep at {file}. Found something else. Delete it and rerun the sweep: it writes "
            "its plan again."
        ) from error


def _is_name(run: str) -> bool:
    """Say whether it names a subfolder of the sweep's folder, and no path elsewhere."""
    return "/" not in run and "\0" not in run and run not in ("", ".", "..") and len(run.encode(errors="replace")) < 256


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    name: str  # of the run
    # "done" (diverged runs included), "failed", "waiting" if the machine failed, "busy" if another process works on it,
    # or "stopped" by a signal: it resumes from its checkpoint.
    status: Literal["done", "failed", "waiting", "busy", "stopped"]
    error: str = ""  # why it failed, waits or stopped


def state_of(folder: Path) -> State:
    """Find the state of a run, from its folder alone."""
    run = RunFolder(folder)
    if run.is_done:
        return "diverged" if _read_entry(run.record, "status") == "diverged" else "done"
    if is_locked(folder):
        return "running"
    return "failed" if run.has_failed else "waiting"


def is_locked(folder: Path) -> bool:
    """Say whether a living process works on a run or loads its data for an attempt, here or on another machine."""
    run = RunFolder(folder)
    return is_held(run.lock) or is_held_elsewhere(run.claim) or is_held(run.attempt_lock)


def read_outcome(folder: Path) -> Outcome:
    """Read how a settled run ended, from its folder."""
    if RunFolder(folder).is_done:
        return Outcome(folder.name, "done")
    try:
        return Outcome(folder.name, "failed", read_error(folder))
    except UserError as error:  # a damaged file
        return Outcome(folder.name, "failed", str(error))


def read_error(folder: Path) -> str:
    """Read why a run failed."""
    return _read_entry(RunFolder(folder).error, "error")


def _read_entry(file: Path, name: str) -> str:
    """Read a field of a run's JSON file; raise an error if it is missing or the file is damaged."""
    value = open_entry(read_bytes(file), str(file), name)
    if value is None:
        raise UserError(f"Expected {name!r} in {file}. Found none. Delete the file and rerun the sweep.")
    return str(value)


def record_failure(folder: Path, error: str, trace: str = "") -> Outcome:
    """Record in a run's folder that it failed, and why."""
    write_json(RunFolder(make_folder(folder)).error, {"error": error, "traceback": trace})
    return Outcome(folder.name, "failed", error)


@dataclass(frozen=True)
class Status:
    """Status of the runs in a folder."""

    states: Mapping[str, State]  # of every planned run, by name; without plans, of every run
    # Seconds that processes spent on each finished run; empty if no run is left, so that none are needed.
    worked: Mapping[str, float]
    errors: Mapping[str, str]  # why runs failed, by name
    attempts: Mapping[str, str] = field(default_factory=dict)  # how the machine failed during runs that wait, by name
    # The present step, or the last evaluation, of each run in progress, as text, by name.
    progress: Mapping[str, str] = field(default_factory=dict)
    out: Path = Path()  # the folder that contains the runs

    @property
    def counts(self) -> Counter[State]:
        return Counter(self.states.values())

    @property
    def left(self) -> int:
        """Number of runs that are in progress or waiting."""
        return self.counts["running"] + self.counts["waiting"]

    def unfinished(self) -> list[Path]:
        """List the folders of the runs that were started and have not ended, those in progress first."""
        begun = sorted((state, name) for name, state in self.states.items() if state in ("running", "waiting"))
        return [self.out / name for _, name in begun if RunFolder(self.out / name).spec.exists()]

    @property
    def seconds_a_run(self) -> float | None:
        """Mean time of the finished runs; None before the first, or if no time was recorded."""
        return sum(self.worked.values()) / len(self.worked) if any(self.worked.values()) else None

    @property
    def seconds_left(self) -> float | None:
        """Time left if the remaining runs take as long as the finished ones, with as many at a time as now.

        None if nothing runs.
        """
        each, running = self.seconds_a_run, self.counts["running"]
        return None if each is None or not running else each * self.left / running

    def lines(self) -> list[str]:
        """Write the status as lines of text."""
        text = [", ".join(f"{self.counts[state]} {state}" for state in ORDER)]
        if self.left and not self.counts["running"]:
            text.append("Nothing runs at present.")
        elif self.left and self.seconds_a_run is not None and self.seconds_left is not None:
            at_once = self.counts["running"]
            rate = 3600 * at_once / self.seconds_a_run
            text.append(
                f"{format_duration(self.seconds_a_run)} per run, {at_once} at a time, {rate:.0f} runs per hour; "
                f"about {format_duration(self.seconds_left)} left"
            )
        failed = [f"failed: {name}: {error}" for name, error in self.errors.items()]
        running = [f"running: {name}: {done}" for name, done in self.progress.items()]
        return [*text, *running, *failed, *(f"waiting: {name}: {reason}" for name, reason in self.attempts.items())]


def read_status(out: str | Path, before: Status | None = None) -> Status:
    """Read the status of a folder; runs that were finished in an earlier status are not read again.

    Args:
        out: the folder of sweeps, of one run of `fgmix train`, or of several such runs.
        before: an earlier status of the same folder.
    """
    out, names = _list_runs(check_path("out", out))
    states: dict[str, State] = {}
    errors: dict[str, str] = {}
    for name in names:
        if before and before.states.get(name) in FINISHED:
            states[name] = before.states[name]
            continue
        try:
            states[name] = state_of(out / name)
            if states[name] == "failed":
                errors[name] = read_error(out / name)
        except (UserError, OSError) as error:  # damaged or without access: the others are still shown
            states[name], errors[name] = "failed", str(to_user_error(error))
    finished = [name for name, state in states.items() if state in FINISHED]
    are_left = len(finished) + len(errors) < len(states)
    known = before.worked if before else {}
    worked = {name: known[name] if name in known else _read_seconds(out / name) for name in finished if are_left}
    attempts = {name: describe_last_attempt(out / name) for name, state in states.items() if state == "waiting"}
    current = {each.run: str(each) for each in read_steps(out)}
    running = [name for name, state in states.items() if state == "running"]
    progress = {name: current.get(name) or _read_progress(out / name) for name in running}
    return Status(
        states,
        worked,
        errors,
        {name: reason for name, reason in attempts.items() if reason},
        {name: done for name, done in progress.items() if done},
        out,
    )


def _list_runs(out: Path) -> tuple[Path, list[str]]:
    """List the runs of the plans, else the run that the folder is, or those in it; return their folder and names."""
    planned = list(dict.fromkeys(name for plan in read_plans(out) for name in plan.runs))
    if planned:
        return out, planned
    spec = RunFolder(out).spec
    if spec.exists():
        return out.resolve().parent, [out.resolve().name]
    names: list[str] = []
    with suppress(OSError), os.scandir(out) as entries:  # strings, not Path objects: there may be 20,000
        names = sorted(entry.name for entry in entries if entry.is_dir() and _may_be_run(entry.path))
    if not names:
        raise UserError(
            f"Expected the folder of a sweep or of a run at {out}. Found no plan and no run. Start one with "
            f"`fgmix sweep --out {out}`."
        )
    return out, names


def _may_be_run(folder: str) -> bool:
    """Whether a folder is that of a run, or may be because this user has no access to it."""
    return os.path.lexists(f"{folder}/{SPEC}") or not os.access(folder, os.X_OK)


def _read_progress(folder: Path) -> str:
    """Read the step of the last evaluation; empty before the first, or while a file is being written."""
    run = RunFolder(folder)
    try:
        evaluations, steps = run.evaluations(), read_json(run.spec)["spec"]["steps"]
    except (UserError, KeyError, TypeError):
        return ""
    return f"evaluated at step {evaluations[-1].step} of {steps}" if evaluations else ""


# The step that each worker of a sweep is at, in a small file of its own: the folder is all that they share.


class CurrentStep(Struct, frozen=True):
    """How far a worker is with its run, or with what comes before its training."""

    run: str  # its name
    title: str  # for people: method and test domains
    step: int
    steps: int
    phase: str = ""  # what comes before the training; empty in it

    @property
    def share(self) -> float:
        """The share of the run that is trained."""
        return 0.0 if self.phase else self.step / self.steps

    def __str__(self) -> str:
        return f"{self.phase or 'step'} {self.step:,}/{self.steps:,}" if self.steps else self.phase


def step_file(out: Path) -> Path:
    """Return the file of this process among the workers of a sweep."""
    return out / STEPS / f"{platform.node()}-{os.getpid()}.json"


def read_steps(out: Path) -> list[CurrentStep]:
    """Read where the workers of a sweep are; files of workers that died, or are being written, are left out."""
    steps = []
    for path in sorted((out / STEPS).glob("*.json")):
        with suppress(OSError, msgspec.MsgspecError):
            if time.time() - path.stat().st_mtime < STALE_SECONDS:
                steps.append(msgspec.json.decode(path.read_bytes(), type=CurrentStep))
    return steps


def _read_seconds(folder: Path) -> float:
    """Add up the seconds of all sessions, without incomplete lines, left by a crash; 0 if the file cannot be read."""
    try:
        sessions = [line.get("seconds") for line in read_lines(RunFolder(folder).sessions)]
    except UserError:
        return 0.0
    return sum(float(seconds) for seconds in sessions if isinstance(seconds, int | float) and 0 <= seconds < math.inf)


def describe_last_attempt(folder: Path) -> str:
    """Say why and where the machine last failed during a run; empty if it never did."""
    attempts = [line for line in read_lines(RunFolder(folder).attempts) if "reason" in line]
    return f"{attempts[-1]['reason']} (attempt {len(attempts)}, on {attempts[-1].get('host')})" if attempts else ""
