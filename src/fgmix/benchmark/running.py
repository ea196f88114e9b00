"""Run a sweep to its end on any launcher."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fgmix.benchmark.execute import Outcome
from fgmix.benchmark.sweep import PlannedRun, Sweep, plan, state_of, write_plan
from fgmix.files import make_folder
from fgmix.progress import Progress

Launch = Callable[[Sequence[PlannedRun], Path, Callable[[Outcome], None]], object]
POLL_SECONDS = 2.0  # between looks at runs that other sweeps on the same folder are working on


@dataclass(frozen=True)
class SweepResult:
    """Names of the runs by how they stand after the sweep."""

    done: tuple[str, ...]
    failed: tuple[str, ...]


def run_sweep(
    sweep: Sweep, out: Path, launch: Launch, *, retry_failed: bool = False, progress: bool = True
) -> SweepResult:
    """Run what is missing; wait for what other processes on the same folder are working on.

    Args:
        sweep: what to run.
        out: folder of the runs.
        launch: executes runs and reports each outcome, such as a launcher's function.
        retry_failed: run those again that failed before.
        progress: show a progress bar.
    """
    runs = plan(sweep)
    write_plan(make_folder(out), sweep, runs)
    given_up = {run.name for run in runs if state_of(out / run.name) == "failed"} if not retry_failed else set()
    done = sum(state_of(out / run.name) in ("done", "diverged") for run in runs)
    with Progress("sweep", len(runs), done=done, show=progress) as bar:

        def report(outcome: Outcome) -> None:
            if outcome.status == "failed":
                given_up.add(outcome.name)
            if outcome.status != "busy":
                bar.advance(note=f"{outcome.name} {outcome.status}")

        while missing := [run for run in runs if run.name not in given_up and not _finished(out, run)]:
            free = [run for run in missing if state_of(out / run.name) != "running"]
            if free:
                launch(free, out, report)
            else:
                time.sleep(POLL_SECONDS)
    failed = tuple(run.name for run in runs if run.name in given_up)
    return SweepResult(tuple(run.name for run in runs if run.name not in given_up), failed)


def _finished(out: Path, run: PlannedRun) -> bool:
    return (out / run.name / "record.json").exists()
