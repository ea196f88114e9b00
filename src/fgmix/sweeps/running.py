"""Run sweeps to completion with any launcher."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fgmix.errors import UserError
from fgmix.logs import check
from fgmix.progress import Progress
from fgmix.records.files import make_folder
from fgmix.records.plans import Outcome, Plan, is_locked, is_settled, read_plans, write_plan
from fgmix.records.schema import RunRecord
from fgmix.records.store import RunFolder
from fgmix.sweeps.attempts import forget
from fgmix.sweeps.design import PlannedRun, Sweep, plan_all
from fgmix.training.signals import Stop, Stopped, stop_on_signal
from fgmix.training.trunk import remove_trunks

Report = Callable[[Outcome], None]
Launch = Callable[
    [Sequence[PlannedRun], Path, Report], Sequence[Outcome]
]  # reports and returns the outcomes of the runs
POLL_SECONDS = 2.0  # between checks of runs that other sweeps on the same folder are working on


@dataclass(frozen=True)
class SweepResult:
    """Names of the runs by their state after the sweep.

    Args:
        done: finished runs, diverged ones included.
        failed: runs that ended in an error.
        waiting: runs that are left because the machine failed.
        stopped_by: how the machine failed; empty if no run waits.
    """

    done: tuple[str, ...]
    failed: tuple[str, ...]
    waiting: tuple[str, ...] = ()
    stopped_by: str = ""


def run_sweeps(
    sweeps: Sequence[Sweep],
    out: Path,
    launch: Launch,
    *,
    retry_failed: bool = False,
    progress: bool = True,
    log: Sequence[str] = (),
    finished: Iterable[RunRecord] = (),
) -> SweepResult:
    """Run what is missing, and wait for runs that other processes on the same folder are working on.

    If the machine fails, for example because of a full disk, the remaining runs wait; the same call resumes them.

    Args:
        sweeps: what to run.
        out: folder of the runs.
        launch: a launcher's function, which executes runs and reports each outcome.
        retry_failed: run again those that failed before.
        progress: show a progress bar.
        log: trackers to log the runs to, such as ("tensorboard",): see `fgmix.logs`.
        finished: records made elsewhere: runs of the sweeps among them are not trained again.
    """
    log = check(log)
    runs = [replace(run, log=log) for run in _planned(sweeps, make_folder(out))]
    for note in dict.fromkeys(note for run in runs for note in run.notes):
        print(f"note: {note}", file=sys.stderr)
    if retry_failed:
        for run in runs:
            forget(out / run.name)
    _take_over(finished, runs, out)
    missing, stopped_by = _missing(out, runs), ""
    with _stopping() as stop, Progress("sweep", len(runs), done=len(runs) - len(missing), show=progress) as bar:
        while missing and not stopped_by:
            with stop.at_once():
                stopped_by = _worked_on(launch, missing, out, bar)
            missing = _missing(out, runs)
            bar.advance(len(runs) - len(missing) - bar.done)  # runs that other sweeps have finished meanwhile
    if not stopped_by and _all_settled(out):
        remove_trunks(out)
    return _result(out, runs, stopped_by)


def _all_settled(out: Path) -> bool:
    """Whether no sweep on a folder has runs left, which might start from a trunk."""
    try:
        return all(is_settled(out / name) for plan in read_plans(out) for name in plan.runs)
    except UserError:  # a plan that cannot be read may have runs left
        return False


def _take_over(finished: Iterable[RunRecord], runs: Sequence[PlannedRun], out: Path) -> None:
    """Write the records of planned runs that are not yet in the folder."""
    names = {run.name for run in runs}
    for record in finished:
        folder = RunFolder(out / record.spec.name)
        if record.spec.name in names and not folder.is_settled:
            make_folder(folder.path)
            record.write(folder.record)


@contextmanager
def _stopping() -> Iterator[Stop]:
    """Within the block a signal acts like Ctrl-C: the launcher ends its workers; local ones write checkpoints first."""
    with stop_on_signal() as stop:
        try:
            yield stop
        except Stopped as stopped:
            raise Stopped(f"Stopped by {stop.reason}. Rerun the same command to resume.") from stopped


def _worked_on(launch: Launch, missing: Sequence[PlannedRun], out: Path, bar: Progress) -> str:
    """Launch the runs that no other process works on, or wait; returns how the machine failed, or an empty text."""
    free = [run for run in missing if not is_locked(out / run.name)]
    if free:
        return _launched(launch, free, out, bar)
    time.sleep(POLL_SECONDS)
    return ""


def _launched(launch: Launch, runs: Sequence[PlannedRun], out: Path, bar: Progress) -> str:
    """Launch runs; returns how the machine failed if that left runs waiting, or an empty text."""
    ended = launch(runs, out, lambda found: bar.advance(found.status in ("done", "failed"), _note(found)))
    if not ended:
        raise UserError(
            f"Expected the launcher to run {len(runs)} runs. Found that it ended without one. See its logs in {out}."
        )
    if all(outcome.status == "busy" for outcome in ended):  # another sweep is training their trunk
        time.sleep(POLL_SECONDS)
    left = [outcome.error for outcome in ended if outcome.status == "waiting" and not is_settled(out / outcome.name)]
    return left[-1] if left else ""


def _result(out: Path, runs: Sequence[PlannedRun], stopped_by: str) -> SweepResult:
    folders = {run.name: RunFolder(out / run.name) for run in runs}
    return SweepResult(
        done=tuple(name for name, folder in folders.items() if folder.is_done),
        failed=tuple(name for name, folder in folders.items() if folder.has_failed),
        waiting=tuple(name for name, folder in folders.items() if not folder.is_settled),
        stopped_by=stopped_by,
    )


def _planned(sweeps: Sequence[Sweep], out: Path) -> list[PlannedRun]:
    """The runs of all sweeps, each once and trial by trial; all plans are written before anything runs."""
    plans = plan_all(sweeps)
    for sweep, runs in zip(sweeps, plans):
        write_plan(out, Plan(tuple(run.name for run in runs), sweep.grid), asdict(sweep))
    runs = list({run.name: run for runs in plans for run in runs}.values())
    datasets = list(dict.fromkeys(run.spec.dataset for run in runs))
    return sorted(runs, key=lambda run: (datasets.index(run.spec.dataset), run.spec.trial_seed))


def _missing(out: Path, runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    return [run for run in runs if not is_settled(out / run.name)]


def _note(outcome: Outcome) -> str:
    return f"{outcome.name} {outcome.status}"
