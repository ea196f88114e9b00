"""Show where the runs of a sweep are: each worker writes its step to a file of its own, which the sweep reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import msgspec

from fgmix.progress import Progress
from fgmix.records.status import CurrentStep, read_steps, step_file
from fgmix.sweeps.design import PlannedRun

WRITE_SECONDS = 1.0  # between two steps that a worker writes
READ_SECONDS = 1.0  # between two looks at them
MOST = 3  # runs that are named beside the bar


class StepFile(Progress):
    """The progress of a run in a worker: written to its file, and shown nowhere else."""

    def __init__(self, run: PlannedRun, out: Path) -> None:
        super().__init__(run.name, run.spec.steps or 1, show=False)
        self.title = f"{run.spec.algorithm} {'+'.join(run.spec.test_domains) or 'on all domains'}"
        self.path = step_file(out)
        self._written = 0.0

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def skip(self, n: float) -> None:
        """Begin at step n: of a checkpoint, or after the steps that were trained for several runs."""
        self.done = n

    def _update(self, note: str | None) -> None:  # noqa: ARG002 (notes of a run are not shown)
        if time.monotonic() - self._written < WRITE_SECONDS:
            return
        self._written = time.monotonic()
        current = CurrentStep(self.description, self.title, int(self.done), self.total)
        with suppress(OSError):  # a full disk is reported by the run itself
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_bytes(msgspec.json.encode(current))


@contextmanager
def follow_steps(out: Path, bar: Progress) -> Iterator[None]:
    """Show the steps of the workers beside the bar of their sweep until the block ends."""
    ended = Event()

    def look() -> None:
        while not ended.wait(READ_SECONDS):
            show_steps(read_steps(out), bar)

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def show_steps(steps: list[CurrentStep], bar: Progress) -> None:
    """Show where runs are, and count what they have done as parts of runs: the time left is known before one ends."""
    bar.ahead = sum(each.step / each.steps for each in steps)
    shown = [f"{each.title} step {each.step:,}/{each.steps:,}" for each in steps[:MOST]]
    more = [f"{len(steps) - MOST} more"] if len(steps) > MOST else []
    if shown:
        bar.say(", ".join([*shown, *more]))
