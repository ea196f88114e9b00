"""fgmix status: where a sweep stands."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from fgmix.errors import UserError


def status(
    out: Annotated[Path, typer.Argument(help="the sweep's folder")],
    watch: Annotated[bool, typer.Option(help="look again every few seconds until nothing is left")] = False,
    every: Annotated[float, typer.Option(help="seconds between looks")] = 5.0,
) -> None:
    """Runs done, running, failed and waiting, the rate, and the time left."""
    from fgmix.benchmark.sweep import read_plans, states

    names = list(read_plans(out))
    if not names:
        raise UserError(
            f"Expected a sweep's folder at {out}. Found no plan of one. Start one with `fgmix sweep --out`."
        )
    while True:
        counts: Counter[str] = Counter(states(out, names).values())
        print("\n".join(lines(counts, _worked_seconds(out, names))), flush=True)
        if not watch or not counts["running"] + counts["waiting"]:
            break
        time.sleep(every)
    for name in names:
        error = out / name / "error.json"
        if error.exists():
            print(f"failed: {name}: {json.loads(error.read_text())['error']}")


def lines(counts: Counter[str], worked_seconds: float) -> list[str]:
    """The state in words; the time left assumes that waiting runs take as long as the finished ones did."""
    from fgmix.benchmark.cost import readable_duration

    done = counts["done"] + counts["diverged"]
    left = counts["running"] + counts["waiting"]
    text = ", ".join(f"{counts[state]} {state}" for state in ("done", "diverged", "running", "failed", "waiting"))
    if not done or not left:
        return [text]
    each = worked_seconds / done
    at_once = max(1, counts["running"])
    return [
        text,
        f"{readable_duration(each)} a run, {at_once} at once: about {readable_duration(each * left / at_once)} left",
    ]


def _worked_seconds(out: Path, names: list[str]) -> float:
    """Time that processes spent on the runs that are done."""
    seconds = 0.0
    for name in names:
        sessions = out / name / "sessions.jsonl"
        if (out / name / "record.json").exists() and sessions.exists():
            seconds += sum(json.loads(line)["seconds"] for line in sessions.read_text().splitlines() if line.strip())
    return seconds
