"""Plans of sweeps: which runs belong to one. No torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fgmix.errors import MachineError, UserError
from fgmix.records.files import make_folder, read_json, write_json

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
