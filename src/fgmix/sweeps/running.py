"""Run sweeps to their end on any launcher."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fgmix.errors import UserError
from fgmix.files import make_folder
from fgmix.progress import Progress
from fgmix.runs.folder import RunFolder
from fgmix.runs.trunk import remove_trunks
from fgmix.sweeps.folder import Outcome, Plan, is_locked, is_settled, write_plan
from fgmix.sweeps.sweep import PlannedRun, Sweep, plan

Report = Callable[[Outcome], None]
Launch = Callable[
    [Sequence[PlannedRun], Path, Report], Sequence[Outcome]
]  # reports and returns what became of the runs
POLL_SECONDS = 2.0  # between looks at runs that other sweeps on the same folder are working on


@dataclass(frozen=True)
class SweepResult:
    """Names of the runs by how they stand after the sweep."""

    done: tuple[str, ...]
    failed: tuple[str, ...]


def run_sweeps(
    sweeps: Sequence[Sweep], out: Path, launch: Launch, *, retry_failed: bool = False, progress: bool = True
) -> SweepResult:
    """Run what is missing; wait for what other processes on the same folder are working on.

    Args:
        sweeps: what to run.
        out: folder of the runs.
        launch: executes runs and reports each outcome, such as a launcher's function.
        retry_failed: run those again that failed before.
        progress: show a progress bar.
    """
    runs = _planned(sweeps, make_folder(out))
    if retry_failed:
        for run in runs:
            RunFolder(out / run.name).error.unlink(missing_ok=True)
    missing = _missing(out, runs)
    with Progress("sweep", len(runs), done=len(runs) - len(missing), show=progress) as bar:
        while missing:
            free = [run for run in missing if not is_locked(out / run.name)]
            if not free:
                time.sleep(POLL_SECONDS)
            elif not (ended := launch(free, out, lambda found: bar.advance(found.status != "busy", _note(found)))):
                raise UserError(
                    f"Expected the launcher to run {len(free)} runs. Found that it ended without one. See its logs "
                    f"in {out}."
                )
            elif all(outcome.status == "busy" for outcome in ended):  # a trunk that another sweep trains
                time.sleep(POLL_SECONDS)
            missing = _missing(out, runs)
            bar.advance(len(runs) - len(missing) - bar.done)  # what other sweeps have finished meanwhile
    remove_trunks(out)
    done = {run.name for run in runs if RunFolder(out / run.name).is_done}
    return SweepResult(
        tuple(run.name for run in runs if run.name in done), tuple(run.name for run in runs if run.name not in done)
    )


def _planned(sweeps: Sequence[Sweep], out: Path) -> list[PlannedRun]:
    """The runs of all sweeps, each once; every plan is noted before anything runs."""
    plans = [plan(sweep) for sweep in sweeps]
    for sweep, runs in zip(sweeps, plans):
        write_plan(out, Plan(tuple(run.name for run in runs), sweep.grid), asdict(sweep))
    return list({run.name: run for runs in plans for run in runs}.values())


def _missing(out: Path, runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    return [run for run in runs if not is_settled(out / run.name)]


def _note(outcome: Outcome) -> str:
    return f"{outcome.name} {outcome.status}"
