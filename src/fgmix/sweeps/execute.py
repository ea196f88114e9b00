"""Execute sweeps: plan the runs, launch what is missing, execute one run, show where workers are; for any launcher."""

from __future__ import annotations

import gc
import os
import platform
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

import msgspec
import torch

from fgmix.data import DomainDataset, LoadOptions, load
from fgmix.errors import MachineError, UserError, find_machine_failure
from fgmix.logs import Log, check_names
from fgmix.progress import Progress
from fgmix.records.code import list_files, load_plugin
from fgmix.records.files import append_line, make_folder
from fgmix.records.locks import hold_lock
from fgmix.records.schema import RunRecord
from fgmix.records.status import (
    CurrentStep,
    Outcome,
    Plan,
    is_locked,
    read_error,
    read_plans,
    read_steps,
    record_failure,
    step_file,
    write_plan,
)
from fgmix.records.store import RunBusy, RunFolder, describe_older, is_other_code, write_record
from fgmix.sweeps.design import PlannedRun, Sweep, plan_all
from fgmix.terminal import print_lines, print_notes
from fgmix.training.devices import pick_device
from fgmix.training.loop import train
from fgmix.training.prepare import choose_load_options, describe_code
from fgmix.training.resolve import resolve
from fgmix.training.signals import Stop, Stopped, stop_on_signal
from fgmix.training.trunk import remove_trunks

Report = Callable[[Outcome], None]
Launch = Callable[[Sequence[PlannedRun], Path, Report], Sequence[Outcome]]  # reports and returns the outcomes
POLL_SECONDS = 2.0  # between checks of runs that other sweeps on the same folder are working on


@dataclass(frozen=True, repr=False)
class SweepResult:
    """Names of the runs by their state after the sweep."""

    done: tuple[str, ...]  # diverged ones included
    failed: tuple[str, ...]  # ended in an error
    waiting: tuple[str, ...] = ()  # left because the machine failed
    stopped_by: str = ""  # how the machine failed; empty if no run waits

    def __repr__(self) -> str:
        return f"<{len(self.done)} runs done, {len(self.failed)} failed, {len(self.waiting)} waiting>"


def run_sweeps(
    sweeps: Sequence[Sweep],
    out: Path,
    launch: Launch,
    *,
    retry_failed: bool = False,
    progress: bool = True,
    log: Sequence[str] = (),
    finished: Iterable[RunRecord] = (),
    accept_code: bool = False,
) -> SweepResult:
    """Run what is missing, and wait for runs that other processes on the same folder are working on.

    If the machine fails, for example because of a full disk, the remaining runs wait; the same call resumes them.

    Args:
        sweeps, out: what to run, and the folder of the runs.
        launch: a launcher's function, which executes runs and reports each outcome.
        retry_failed: run again those that failed before.
        progress: show a progress bar.
        log: trackers to log the runs to, such as ("tensorboard",): see `fgmix.logs`.
        finished: records made elsewhere: runs of the sweeps among them are not trained again.
        accept_code: keep finished runs of other code of their methods without a note, and resume unfinished ones.
    """
    log = check_names(log)
    how: dict[str, Any] = {"log": log, "accept_code": accept_code, "plugins": list_files()}
    runs = [replace(run, **how) for run in _write_plans(sweeps, make_folder(out))]
    print_notes(*dict.fromkeys(note for run in runs for note in run.notes))
    if retry_failed:
        for folder in (RunFolder(out / run.name) for run in runs):
            folder.error.unlink(missing_ok=True)
            folder.attempts.unlink(missing_ok=True)
    _write_records(finished, runs, out)
    if not accept_code:
        _compare_code(out, runs)
    missing, stopped_by = _select_missing(out, runs), ""
    if progress and missing:
        print_lines([f"sweep: {len(missing):,} of {len(runs):,} runs to train"], sys.stderr)
    bar = Progress("sweep", len(runs), "runs", done=len(runs) - len(missing), show=progress)
    with _stop_like_ctrl_c() as stop, bar, follow_steps(out, bar):
        while missing and not stopped_by:
            with stop.at_once():
                stopped_by = _launch_or_wait(launch, missing, out, bar)
            missing = _select_missing(out, runs)
            bar.advance(len(runs) - len(missing) - bar.done)  # runs that other sweeps have finished meanwhile
    if not stopped_by and _is_folder_settled(out):
        remove_trunks(out)
    return _collect_result(out, runs, stopped_by)


def _write_plans(sweeps: Sequence[Sweep], out: Path) -> list[PlannedRun]:
    """Write all plans before anything runs; return the runs of all sweeps, each once and trial by trial."""
    plans = plan_all(sweeps)
    for sweep, runs in zip(sweeps, plans):
        content = asdict(sweep)
        if not sweep.single_source:
            del content["single_source"]  # so that plans of earlier versions do not change
        write_plan(out, Plan(tuple(run.name for run in runs), sweep.grid), content)
    runs = list({run.name: run for runs in plans for run in runs}.values())
    datasets = list(dict.fromkeys(run.spec.dataset for run in runs))
    return sorted(runs, key=lambda run: (datasets.index(run.spec.dataset), run.spec.trial_seed))


def _write_records(finished: Iterable[RunRecord], runs: Sequence[PlannedRun], out: Path) -> None:
    """Write the records of planned runs that are not yet in the folder."""
    names = {run.name for run in runs}
    for record in finished:
        folder = RunFolder(out / record.spec.name)
        if record.spec.name in names and not folder.is_settled:
            make_folder(folder.path)
            write_record(record, folder.record)


def _compare_code(out: Path, runs: Sequence[PlannedRun]) -> None:
    """Print a note on finished runs of other code than the present; raise an error for checkpoints of such runs."""
    older: dict[str, list[Path]] = defaultdict(list)
    for run in runs:
        folder = RunFolder(out / run.name)
        if not is_other_code(folder.read_code(), describe_code(run.spec)):
            continue
        if folder.is_done:
            older[run.spec.algorithm].append(folder.path)
        elif folder.has_checkpoint:
            raise UserError(
                f"The run {folder.path} was started with other code of {run.spec.algorithm}. Delete it to train it "
                "again, or resume such runs with --accept-code."
            )
    for algorithm, folders in older.items():
        print_notes(describe_older(len(folders), algorithm, folders[0]))


def _select_missing(out: Path, runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    return [run for run in runs if not RunFolder(out / run.name).is_settled]


@contextmanager
def _stop_like_ctrl_c() -> Iterator[Stop]:
    """Let a signal act like Ctrl-C: the launcher ends its workers; local ones write checkpoints first."""
    with stop_on_signal() as stop:
        try:
            yield stop
        except Stopped as stopped:
            raise Stopped(f"Stopped by {stop.reason}. Rerun the same command to resume.") from stopped


def _launch_or_wait(launch: Launch, missing: Sequence[PlannedRun], out: Path, bar: Progress) -> str:
    """Launch the runs that no other process works on; return how the machine failed if that left runs waiting."""
    free = [run for run in missing if not is_locked(out / run.name)]
    if not free:
        time.sleep(POLL_SECONDS)
        return ""

    def report(outcome: Outcome) -> None:
        bar.advance(outcome.status in ("done", "failed"))

    outcomes = launch(free, out, report)
    if not outcomes:
        raise UserError(
            f"Expected the launcher to run {len(free)} runs. Found that it ended without one. See its logs in {out}."
        )
    if all(outcome.status == "busy" for outcome in outcomes):  # another sweep is training their trunk
        time.sleep(POLL_SECONDS)
    reasons = [
        each.error for each in outcomes if each.status == "waiting" and not RunFolder(out / each.name).is_settled
    ]
    return reasons[-1] if reasons else ""


def _is_folder_settled(out: Path) -> bool:
    """Whether no sweep on a folder has runs left, which might start from a trunk."""
    try:
        return all(RunFolder(out / name).is_settled for plan in read_plans(out) for name in plan.runs)
    except UserError:  # a plan that cannot be read may have runs left
        return False


def _collect_result(out: Path, runs: Sequence[PlannedRun], stopped_by: str) -> SweepResult:
    folders = {run.name: RunFolder(out / run.name) for run in runs}
    return SweepResult(
        done=tuple(name for name, folder in folders.items() if folder.is_done),
        failed=tuple(name for name, folder in folders.items() if folder.has_failed),
        waiting=tuple(name for name, folder in folders.items() if not folder.is_settled),
        stopped_by=stopped_by,
    )


# One run, in the process of a worker


def execute(run: PlannedRun, out: str, device: str = "auto") -> Outcome:
    """Train (or resume, or read) one planned run; an error is recorded in its folder, not raised.

    A run that has failed, here or in another process, is not tried again while its error.json exists. The outcome is
    "busy" if another process works on the run or on its trunk, "waiting" if the machine failed, and "stopped" after a
    signal: the run then has a checkpoint. The memory of the run is freed afterwards, also for other runs on its GPU.
    """
    folder = Path(out) / run.name
    try:
        # `train` releases the run's own lock before its error is known: this lock is held until the error is recorded.
        with hold_lock(RunFolder(make_folder(folder)).attempt_lock, RunBusy(f"Another process tries {run.name}.")):
            return _attempt(run, folder, device)
    except RunBusy:
        return Outcome(run.name, "busy")
    except MachineError as error:
        return postpone(folder, error, device)
    except Stopped as stopped:
        return Outcome(run.name, "stopped", str(stopped))
    except UserError as error:  # a folder that cannot be locked
        return record_failure(folder, str(error))
    finally:
        _release_memory()


def _attempt(run: PlannedRun, folder: Path, device: str) -> Outcome:
    """Train a run, or record why it failed; raise MachineError if the machine failed or the failure is not recorded."""
    try:
        if RunFolder(folder).has_failed:  # checked before the data are loaded
            return Outcome(run.name, "failed", read_error(folder))
        with StepFile(run, folder.parent) as steps:
            data = _load_data(run, device)
            if resolve(run.spec, data).name != run.name:
                raise UserError(
                    f"Expected the data that {run.name} was planned for. Found others. Plan the sweep again."
                )
            with Log(run.log, folder.parent) as log:
                how: dict[str, Any] = {"device": device, "trunk": run.trunk, "on_evaluation": log, "progress": steps}
                log.complete(train(run.spec, folder.parent, dataset=data, accept_code=run.accept_code, **how))
        return Outcome(run.name, "done")
    except RunBusy:
        raise
    except Exception as error:
        if machine := find_machine_failure(error):
            raise machine from error
        return record_failure(folder, f"{type(error).__name__}: {error}", traceback.format_exc())


def _load_data(run: PlannedRun, device: str) -> DomainDataset:
    """Load the run's data. They and the device were there when the sweep was planned: an error now is the machine's."""
    try:
        pick_device(device)
        for file in run.plugins:
            load_plugin(file)
        return _load_dataset(run.spec.dataset, choose_load_options(run.spec, progress=False))
    except Exception as error:
        raise MachineError(str(error)) from error


@lru_cache(maxsize=4)  # a worker keeps loaded datasets: hundreds of runs share them
def _load_dataset(dataset: str, options: LoadOptions) -> DomainDataset:
    return load(dataset, options)


def _release_memory() -> None:
    gc.collect()  # models contain reference cycles: through hooks, optimisers, closures
    _spare_modules()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


@cache
def _spare_modules() -> None:
    """Let later collections skip what is alive after a process's first run: modules and data, a sixth of a second."""
    gc.freeze()


def postpone(folder: Path, error: MachineError, device: str) -> Outcome:
    """Note that the machine failed during a run, which says nothing about the run: it waits for another attempt."""
    place = {"host": platform.node(), "device": device, "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}
    line = {**place, "at": time.time(), "reason": str(error)}
    with suppress(OSError, MachineError):  # the disk may be what failed
        append_line(RunFolder(make_folder(folder)).attempts, line)
    return Outcome(folder.name, "waiting", str(error))


WRITE_SECONDS = 1.0  # between two steps that a worker writes
READ_SECONDS = 1.0  # between two looks at them
MOST = 3  # runs that are named beside the bar


class StepFile(Progress):
    """The progress of a run in a worker: written to its file, and shown nowhere else."""

    def __init__(self, run: PlannedRun, out: Path) -> None:
        super().__init__(run.name, 0, "steps", show=False)
        self.title = f"{run.spec.algorithm} {'+'.join(run.spec.test_domains) or 'on all domains'}"
        self.path = step_file(out)
        self.current = CurrentStep(run.name, self.title, 0, 0, "loading data")
        self._written = 0.0

    def __enter__(self) -> Self:
        self.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def begin_part(self, part: Progress) -> None:
        """Begin to prepare the run, or to train it: at a checkpoint, or after steps that were trained for several."""
        self._written = 0.0
        self.advance_part(part)

    def advance_part(self, part: Progress, n: float = 0, note: str | None = None) -> None:  # noqa: ARG002
        phase = "" if part.counts else part.description
        self.current = CurrentStep(self.description, self.title, int(part.done), part.total, phase)
        self.refresh()

    def refresh(self, note: str | None = None) -> None:  # noqa: ARG002 (notes of a run are not shown)
        if time.monotonic() - self._written < WRITE_SECONDS:
            return
        self._written = time.monotonic()
        with suppress(OSError):  # a full disk is reported by the run itself
            self.path.parent.mkdir(exist_ok=True)
            new = self.path.with_suffix(".new")
            new.write_bytes(msgspec.json.encode(self.current))
            new.replace(self.path)  # nobody reads half of it


@contextmanager
def follow_steps(out: Path, bar: Progress) -> Iterator[None]:
    """Show the steps of the workers beside the bar of their sweep until the block ends."""
    ended = Event()

    def look() -> None:
        while not ended.wait(READ_SECONDS):
            show_steps(read_steps(out), bar)

    bar.refresh("starting workers")
    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        bar.refresh("")


def show_steps(steps: list[CurrentStep], bar: Progress) -> None:
    """Show where runs are, and count what they have done as parts of runs: the time left is known before one ends."""
    shown = [f"{each.title} {each}" for each in steps[:MOST]]
    more = [f"{len(steps) - MOST} more"] if len(steps) > MOST else []
    bar.ahead = sum(each.share for each in steps)
    bar.refresh(", ".join([*shown, *more]) or None)
