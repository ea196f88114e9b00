"""Assign runs to workers of any kind: processes on a machine, actors on a Ray cluster.

A run whose worker dies is assigned to another, up to a number of deaths. If the machine fails during a run, the run is
queued behind the others, which show whether the machine works, and its worker is replaced: a GPU may work for a new
one. If this happens to two runs in a row, the place gets no more workers; with no place left, the remaining runs wait.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from fgmix.records.plans import Outcome, failed, is_settled, outcome_of
from fgmix.sweeps.attempts import Health
from fgmix.sweeps.design import PlannedRun
from fgmix.sweeps.running import Report

W = TypeVar("W")  # a launcher's worker
GRACE = 60.0  # seconds in which a worker that should end writes a checkpoint


@dataclass
class Slot(Generic[W]):
    """A place for one worker at a time.

    Args:
        place: its device or node.
        health: whether the machine works there, over successive workers.
        worker: the current one.
        run: the run it is executing.
        is_closed: whether it gets no more workers.
    """

    place: str
    health: Health
    worker: W | None = None
    run: PlannedRun | None = None
    is_closed: bool = False


class Pool(ABC, Generic[W]):
    """Workers, the runs that wait for one, and the outcomes of the others.

    Args:
        runs: what to execute.
        out: the sweep's folder.
        report: called after each run.
        places: one for each worker.
    """

    most_deaths = 3  # of workers during a run, after which the run counts as failed
    cause_of_death = "it may have run out of memory"

    def __init__(self, runs: Sequence[PlannedRun], out: Path, report: Report, places: Iterable[str] = ()) -> None:
        self.out, self.report, self.waiting = out, report, deque(runs)
        self.slots = [Slot[W](place, Health(out)) for place in places]
        self.deaths = Counter[str]()
        self.outcomes: list[Outcome] = []

    @abstractmethod
    def start(self, place: str) -> W:
        """A new worker."""

    @abstractmethod
    def give(self, worker: W, run: PlannedRun) -> None:
        """Let a worker execute a run."""

    @abstractmethod
    def hear(self, slots: Sequence[Slot[W]]) -> Iterable[tuple[Slot[W], Outcome | None]]:
        """Wait for workers; returns the outcomes of their runs, None for a worker that died."""

    @abstractmethod
    def dismiss(self, workers: Sequence[W], seconds: float = 0.0) -> None:
        """End workers; local ones have `seconds` to write a checkpoint."""

    def is_ready(self, worker: W) -> bool:  # noqa: ARG002
        """Whether a worker has started."""
        return True

    def name_of(self, place: str) -> str:
        """The name of a place, for messages."""
        return place

    def look_around(self) -> None:
        """Add and remove slots, if places can appear and disappear."""

    def run_to_end(self) -> list[Outcome]:
        """Execute the runs; returns their outcomes in order of completion."""
        try:
            while slots := self._give():
                for slot, outcome in self.hear(slots):
                    self._note(slot, outcome)
        finally:
            self.end()
        return self.outcomes

    def end(self, seconds: float = GRACE) -> None:
        """End all workers, as `dismiss` does."""
        self.dismiss([slot.worker for slot in self.slots if slot.worker is not None], seconds)

    def close(self, slot: Slot[W], reason: str) -> None:
        """Start no more workers in a slot."""
        slot.is_closed = True
        if not all(each.is_closed for each in self.slots):
            print(f"note: A worker on {self.name_of(slot.place)} takes no more runs. {reason}", file=sys.stderr)

    def _give(self) -> list[Slot[W]]:
        """Give runs to idle workers, first to those without a failure; returns the slots to wait for."""
        self.look_around()
        for slot in sorted(self.slots, key=lambda slot: len(slot.health.unfinished)):
            if slot.is_closed or slot.run is not None:
                continue
            if slot.worker is None and self._idle < len(self.waiting):
                slot.worker = self.start(slot.place)
            if slot.worker is not None and self.is_ready(slot.worker):
                slot.run = self._next()
                if slot.run is not None:
                    self.give(slot.worker, slot.run)
        starting = [slot for slot in self.slots if self.waiting and slot.worker is not None and slot.run is None]
        return [*(slot for slot in self.slots if slot.run is not None), *starting]

    @property
    def _idle(self) -> int:
        return sum(slot.worker is not None and slot.run is None for slot in self.slots)

    def _next(self) -> PlannedRun | None:
        """The next run; those that another sweep or job has settled meanwhile are only reported."""
        while self.waiting:
            run = self.waiting.popleft()
            if not is_settled(self.out / run.name):
                return run
            self._end(outcome_of(self.out / run.name))
        return None

    def _note(self, slot: Slot[W], outcome: Outcome | None) -> None:
        run, slot.run = slot.run, None
        assert run is not None, "only a worker with a run has an outcome"
        if outcome is None:
            self._clear(slot)
            self._died(run)
            return
        slot.health.note(outcome)
        if outcome.status == "stopped":  # by a signal to this worker only: another one resumes the run
            self._clear(slot)
            self.waiting.appendleft(run)
            return
        self._end(outcome)
        if outcome.status == "waiting":
            self._clear(slot)
            self.waiting.append(run)
            if slot.health.is_ill:
                self.close(slot, slot.health.reason)

    def _died(self, run: PlannedRun) -> None:
        self.deaths[run.name] += 1
        if self.deaths[run.name] < self.most_deaths:
            self.waiting.appendleft(run)
        else:
            reason = f"Its worker process died {self.most_deaths} times; {self.cause_of_death}."
            self._end(failed(self.out / run.name, reason))

    def _end(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.report(outcome)

    def _clear(self, slot: Slot[W]) -> None:
        if slot.worker is not None:
            self.dismiss([slot.worker])
        slot.worker = None
