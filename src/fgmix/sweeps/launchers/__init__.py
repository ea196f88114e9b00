"""Launchers, which execute the runs of a sweep: on this machine, a Ray cluster or a Slurm cluster.

A launcher is a function (runs, out, report) → outcomes that executes each run with `execute` and reports its outcome.
It need not be reliable: `run_sweeps` launches runs that it has lost again.

All launchers assign runs to workers with a `Pool`. A run whose worker dies is assigned to another, up to a number of
deaths. If the machine fails during a run, the run is queued behind the others, which show whether the machine works,
and its worker is replaced: a GPU may work for a new one. After two failures in a row the place gets no more workers;
with no place left, the remaining runs wait. An executor of the standard library or of loky does less: it ends
all workers when one dies, and cannot tell which run killed it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from fgmix.errors import UserError, bad_value, require_package, unknown
from fgmix.records.status import Outcome, read_outcome, record_failure
from fgmix.records.store import RunFolder
from fgmix.sweeps.design import PlannedRun
from fgmix.sweeps.execute import Launch, Report
from fgmix.terminal import print_notes

W = TypeVar("W")  # a launcher's worker
GRACE = 60.0  # seconds in which a worker that should end writes a checkpoint
MAX_IN_A_ROW = 2  # failures of the machine, after which a place gets no more workers


@dataclass
class Slot(Generic[W]):
    """A place for one worker at a time."""

    place: str  # its device or node
    worker: W | None = None
    run: PlannedRun | None = None  # the one that the worker executes
    is_closed: bool = False  # gets no more workers
    failures: int = 0  # of its machine since a run was finished


class Pool(ABC, Generic[W]):
    """Workers, one for each place; the runs that wait for one, and the outcomes of the others."""

    max_deaths = 3  # of workers during a run, after which the run counts as failed
    cause_of_death = "it may have run out of memory"

    def __init__(self, runs: Sequence[PlannedRun], out: Path, report: Report, places: Iterable[str] = ()) -> None:
        self.out, self.report, self.waiting = out, report, deque(runs)
        self.slots = [Slot[W](place) for place in places]
        self.deaths = Counter[str]()
        self.outcomes: list[Outcome] = []

    @abstractmethod
    def start(self, place: str) -> W:
        """Start a worker."""

    @abstractmethod
    def send(self, worker: W, run: PlannedRun) -> None:
        """Let a worker execute a run."""

    @abstractmethod
    def receive(self, slots: Sequence[Slot[W]]) -> Iterable[tuple[Slot[W], Outcome | None]]:
        """Wait for workers; return the outcomes of their runs, None for a worker that died."""

    @abstractmethod
    def stop(self, workers: Sequence[W], seconds: float = 0.0) -> None:
        """End workers; local ones have `seconds` to write a checkpoint."""

    def is_ready(self, worker: W) -> bool:  # noqa: ARG002
        """Whether a worker has started."""
        return True

    def describe(self, place: str) -> str:
        """Name a place in messages."""
        return place

    def update_slots(self) -> None:
        """Add and remove slots, if places can appear and disappear."""

    def run_all(self) -> list[Outcome]:
        """Execute the runs; return their outcomes in order of completion."""
        try:
            while slots := self._assign_runs():
                for slot, outcome in self.receive(slots):
                    self._handle(slot, outcome)
        finally:
            self.stop_all()
        return self.outcomes

    def stop_all(self) -> None:
        """End all workers; local ones write a checkpoint first."""
        self.stop([slot.worker for slot in self.slots if slot.worker is not None], GRACE)

    def close(self, slot: Slot[W], reason: str) -> None:
        """Start no more workers in a slot."""
        slot.is_closed = True
        if not all(each.is_closed for each in self.slots):
            print_notes(f"A worker on {self.describe(slot.place)} takes no more runs. {reason}")

    def _assign_runs(self) -> list[Slot[W]]:
        """Give runs to idle workers, first to those without a failure; return the slots to wait for."""
        self.update_slots()
        for slot in sorted(self.slots, key=lambda slot: slot.failures):
            if slot.is_closed or slot.run is not None:
                continue
            idle = sum(each.worker is not None and each.run is None for each in self.slots)
            if slot.worker is None and idle < len(self.waiting):
                slot.worker = self.start(slot.place)
            if slot.worker is not None and self.is_ready(slot.worker):
                slot.run = self._take_next()
                if slot.run is not None:
                    self.send(slot.worker, slot.run)
        starting = [slot for slot in self.slots if self.waiting and slot.worker is not None and slot.run is None]
        return [*(slot for slot in self.slots if slot.run is not None), *starting]

    def _take_next(self) -> PlannedRun | None:
        """Take the next run; those that another sweep or job has settled meanwhile are only reported."""
        while self.waiting:
            run = self.waiting.popleft()
            if not RunFolder(self.out / run.name).is_settled:
                return run
            self._add_outcome(read_outcome(self.out / run.name))
        return None

    def _handle(self, slot: Slot[W], outcome: Outcome | None) -> None:
        """Report an outcome, queue the run again if it is not settled, and replace a worker that cannot go on."""
        run, slot.run = slot.run, None
        assert run is not None, "only a worker with a run has an outcome"
        if outcome is None:
            self._stop_worker(slot)
            self._count_death(run)
            return
        if outcome.status == "stopped":  # by a signal to this worker only: another one resumes the run
            self._stop_worker(slot)
            self.waiting.appendleft(run)
            return
        self._add_outcome(outcome)
        if outcome.status == "done":
            slot.failures = 0
        elif outcome.status == "waiting":
            slot.failures += 1
            self._stop_worker(slot)
            self.waiting.append(run)
            if slot.failures >= MAX_IN_A_ROW:
                self.close(slot, outcome.error)

    def _count_death(self, run: PlannedRun) -> None:
        self.deaths[run.name] += 1
        if self.deaths[run.name] < self.max_deaths:
            self.waiting.appendleft(run)
        else:
            reason = f"Its worker process died {self.max_deaths} times; {self.cause_of_death}."
            self._add_outcome(record_failure(self.out / run.name, reason))

    def _add_outcome(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.report(outcome)

    def _stop_worker(self, slot: Slot[W]) -> None:
        if slot.worker is not None:
            self.stop([slot.worker])
        slot.worker = None


def make_launch(
    launcher: str,
    *,
    workers: int | None,
    runs_per_gpu: int,
    device: str,
    address: str,
    cpus: int,
    gpus: float | None,
    slurm: Mapping[str, Any],
) -> Launch:
    """Return the launcher's function with the options of `fgmix sweep`; raise an error for what it does not support."""
    if launcher not in ("local", "ray", "slurm"):
        raise unknown("launcher", launcher, ("local", "ray", "slurm"))
    if launcher == "local":
        from fgmix.sweeps.launchers.local import assign_devices, check_devices, run_local

        devices = tuple(name.strip() for name in device.split(",") if name.strip())
        check_devices(devices)
        options: dict[str, Any] = {"workers": workers, "devices": devices, "runs_per_gpu": runs_per_gpu}
        assign_devices(**options)  # raises errors before the data are loaded
        return partial(run_local, **options)
    if device not in ("auto", "cpu"):
        raise UserError(
            f"Expected --device auto or cpu with --launcher {launcher}. Found {device!r}. It assigns GPUs itself: "
            "request them with --gpus."
        )
    if launcher == "ray":
        require_package("ray", "ray")
        from fgmix.sweeps.launchers.ray import run_ray

        return partial(run_ray, address=address or None, cpus=cpus, gpus=gpus, device=device)
    if gpus is not None and gpus != int(gpus):
        raise bad_value("gpus", "a whole number for slurm", gpus, "Runs share a GPU with --runs-per-gpu.")
    if runs_per_gpu > 1 and not gpus:
        raise UserError(
            f"Expected --gpus with --runs-per-gpu {runs_per_gpu}. Found no --gpus. Add --gpus N, the GPUs of a job."
        )
    require_package("submitit", "slurm")
    from fgmix.sweeps.launchers.slurm import run_slurm

    shared: dict[str, Any] = {"device": device, "cpus": cpus, "gpus": int(gpus or 0), "runs_per_gpu": runs_per_gpu}
    return partial(run_slurm, jobs=workers or 1, options=dict(slurm), **shared)
