"""The folder of sweeps: their plans, and the state of each run. No torch: a laptop can read it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fgmix.errors import MachineError, UserError
from fgmix.records.digests import open_entry
from fgmix.records.files import is_held, make_folder, read_bytes, read_json, write_json
from fgmix.records.locks import is_held_elsewhere
from fgmix.records.store import RunFolder

COST_FILE = "cost.json"  # times per step, of the preset paper-cost

State = Literal["done", "diverged", "running", "failed", "waiting"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Args:
        name: of the run.
        status: "done" (diverged runs included), "failed", "waiting" if the machine failed, "busy" if another process
            works on it, or "stopped" by a signal: it resumes from its checkpoint.
        error: why it failed, waits or stopped.
    """

    name: str
    status: Literal["done", "failed", "waiting", "busy", "stopped"]
    error: str = ""


@dataclass(frozen=True)
class Plan:
    """The plan of a sweep.

    Args:
        runs: names of its runs.
        grid: its grid, as in `Sweep`; empty without one.
    """

    runs: tuple[str, ...]
    grid: Mapping[str, tuple[Any, ...]]


def write_plan(out: Path, plan: Plan, sweep: Mapping[str, Any]) -> None:
    """Write the plan of a sweep, from which `status` lists the runs that wait, and `report` those that belong together.

    Args:
        out: the sweep's folder.
        plan: the plan.
        sweep: the sweep itself as plain values, for information only.
    """
    # A list of pairs keeps the grid's order, which is the order of its table.
    content = {"runs": list(plan.runs), "grid": list(plan.grid.items()), "sweep": sweep}
    digest = hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=6).hexdigest()
    write_json(make_folder(out / "sweeps") / f"{digest}.json", content)


def read_plans(out: Path) -> list[Plan]:
    """The plans of all sweeps in this folder."""
    return [_read_plan(file) for file in sorted((out / "sweeps").glob("*.json"))]


def _read_plan(file: Path) -> Plan:
    try:
        content = read_json(file)
        plan = Plan(tuple(map(str, content["runs"])), {name: tuple(values) for name, values in content["grid"]})
        if not all(map(_is_name, plan.runs)) or any(
            isinstance(v, list | dict) for each in plan.grid.values() for v in each
        ):
            raise ValueError("not what a sweep wants")
        return plan
    except MachineError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"Expected the plan of a sweep at {file}. Found something else. Delete it and rerun the sweep: it writes "
            "its plan again."
        ) from error


def _is_name(run: str) -> bool:
    """Whether it names a subfolder of the sweep's folder, and no path elsewhere."""
    return "/" not in run and "\0" not in run and run not in ("", ".", "..") and len(run.encode(errors="replace")) < 256


def is_settled(folder: Path) -> bool:
    """Whether nothing is left to do for a run: it has a record, or it failed."""
    return RunFolder(folder).is_settled


def has_failed(folder: Path) -> bool:
    """Whether a run ended in an error, and no later attempt has finished it."""
    return RunFolder(folder).has_failed


def state_of(folder: Path) -> State:
    """The state of a run, from its folder alone."""
    run = RunFolder(folder)
    if run.is_done:
        return "diverged" if _text(run.record, "status") == "diverged" else "done"
    if is_locked(folder):
        return "running"
    return "failed" if run.has_failed else "waiting"


def is_locked(folder: Path) -> bool:
    """Whether a living process works on a run, here or on another machine."""
    run = RunFolder(folder)
    return is_held(run.lock) or is_held_elsewhere(run.claim)


def outcome_of(folder: Path) -> Outcome:
    """How a settled run ended, from its folder."""
    if RunFolder(folder).is_done:
        return Outcome(folder.name, "done")
    try:
        return Outcome(folder.name, "failed", read_error(folder))
    except UserError as error:  # a damaged file
        return Outcome(folder.name, "failed", str(error))


def read_error(folder: Path) -> str:
    """Why a run failed."""
    return _text(RunFolder(folder).error, "error")


def _text(file: Path, name: str) -> str:
    """A field of a run's JSON file; raises an error if it is missing or the file is damaged."""
    found = open_entry(read_bytes(file), str(file), name)
    if found is None:
        raise UserError(f"Expected {name!r} in {file}. Found none. Delete the file and rerun the sweep.")
    return str(found)


def failed(folder: Path, error: str, trace: str = "") -> Outcome:
    """Record in a run's folder that it failed, and why."""
    write_json(RunFolder(make_folder(folder)).error, {"error": error, "traceback": trace})
    return Outcome(folder.name, "failed", error)
