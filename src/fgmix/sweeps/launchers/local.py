"""Warm worker processes on this machine: torch and the datasets are loaded once per worker, not once per run."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from fgmix.errors import bad_value, unknown
from fgmix.runs.devices import pick_device
from fgmix.runs.stopping import Stopped
from fgmix.sweeps.attempts import Health
from fgmix.sweeps.execute import execute
from fgmix.sweeps.folder import Outcome, failed
from fgmix.sweeps.running import Report
from fgmix.sweeps.sweep import PlannedRun

DEATHS = 3  # a run whose worker dies under it is given to another; one that kills three is failed


@dataclass
class Worker:
    """A process, the pipe to it, what it is working on, and how it fares."""

    process: BaseProcess
    pipe: Connection
    device: str
    health: Health
    run: PlannedRun | None = None


def run_local(
    runs: Sequence[PlannedRun],
    out: Path,
    report: Report = lambda _: None,
    *,
    workers: int = 1,
    devices: Sequence[str] = ("auto",),
) -> list[Outcome]:
    """Execute runs on `workers` processes; returns their outcomes in order of completion.

    A run that the machine fails waits, and its process is replaced: a GPU may answer a new one. Where two runs in a row
    are failed so, the worker is not replaced; with none left, the runs left wait.

    Args:
        runs: what to execute.
        out: the sweep's folder.
        report: called after each run.
        workers: processes; the threads that torch would take here are shared out between them.
        devices: shared out between the workers in turn, such as ("cuda:0", "cuda:1"); "auto" is every GPU there is.
    """
    import torch

    threads = max(1, torch.get_num_threads() // workers)
    devices = _every_gpu() if tuple(devices) == ("auto",) else devices
    pool = _Pool(out, report, threads, deque(runs))
    for i in range(min(workers, len(runs))):
        pool.add(devices[i % len(devices)], Health(out))
    return pool.run_to_end()


class _Pool:
    """Workers, the runs that wait for one, and what became of the others."""

    def __init__(self, out: Path, report: Report, threads: int, waiting: deque[PlannedRun]) -> None:
        self.out, self.report, self.threads, self.waiting = out, report, threads, waiting
        self.workers: list[Worker] = []
        self.deaths = Counter[str]()
        self.outcomes: list[Outcome] = []

    def add(self, device: str, health: Health) -> None:
        self.workers.append(_start(self.out, device, self.threads, health))

    def run_to_end(self) -> list[Outcome]:
        try:
            while busy := self._give():
                for pipe in wait([worker.pipe for worker in busy]):
                    self._hear(next(worker for worker in busy if worker.pipe is pipe))
        finally:
            _stop(self.workers)
        return self.outcomes

    def _give(self) -> list[Worker]:
        """Give every idle worker a run while there are any, to those without a failure first; returns the busy ones."""
        for worker in sorted(self.workers, key=lambda worker: len(worker.health.unfinished)):
            if worker.run is None and self.waiting:
                worker.run = self.waiting.popleft()
                with suppress(BrokenPipeError):  # a worker that has died: its pipe says so when it is read
                    worker.pipe.send(worker.run)
        return [worker for worker in self.workers if worker.run is not None]

    def _hear(self, worker: Worker) -> None:
        run, worker.run = worker.run, None
        assert run is not None, "only a worker with a run is listened to"
        try:
            outcome = worker.pipe.recv()
        except (EOFError, ConnectionResetError):  # the process is dead; its run's lock died with it
            self._replace(worker)
            self._died(run)
            return
        worker.health.note(outcome)
        self._finish(outcome)
        if outcome.status == "waiting":
            self.waiting.append(run)  # behind the others, which show whether the machine is well
            self._replace(worker)

    def _finish(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.report(outcome)

    def _died(self, run: PlannedRun) -> None:
        self.deaths[run.name] += 1
        if self.deaths[run.name] < DEATHS:
            self.waiting.appendleft(run)
        else:
            reason = f"Its worker process died {DEATHS} times; it may have run out of memory."
            self._finish(failed(self.out / run.name, reason))

    def _replace(self, worker: Worker) -> None:
        """Start a new process in place of one that ended, unless the machine fails run after run there."""
        worker.process.kill()  # one that lost its GPU may not end by itself
        _stop([worker])
        self.workers.remove(worker)
        if not worker.health.is_ill:
            self.add(worker.device, worker.health)
        elif self.workers:
            print(f"note: A worker on {worker.device} takes no more runs. {worker.health.reason}", file=sys.stderr)


def check_devices(devices: Sequence[str]) -> None:
    """Find a device that is not here before every run does. A GPU is only counted: its memory is the workers'."""
    import torch

    if not devices:
        raise bad_value("device", "auto, cpu or names such as cuda:0,cuda:1", "")
    gpus = torch.cuda.device_count()
    for name in devices:
        kind, _, index = name.partition(":")
        if kind != "cuda" or not gpus:
            pick_device(name)
        elif index and (not index.isdecimal() or int(index) >= gpus):
            raise unknown("device", name, [f"cuda:{i}" for i in range(gpus)])


def _every_gpu() -> list[str]:
    import torch

    return [f"cuda:{i}" for i in range(torch.cuda.device_count())] or ["auto"]


def _start(out: Path, device: str, threads: int, health: Health) -> Worker:
    context = multiprocessing.get_context("spawn")  # forking a process that has run torch's threads may hang
    mine, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, str(out), device, threads), daemon=True)
    process.start()
    theirs.close()  # so that the worker's death is an end of file here
    return Worker(process, mine, device, health)


def _stop(pool: Sequence[Worker]) -> None:
    for worker in pool:
        worker.pipe.close()  # an idle worker takes this as the end
        if worker.run is not None:
            worker.process.terminate()
    for worker in pool:
        worker.process.join()


def _work(pipe: Connection, out: str, device: str, threads: int) -> None:
    """A worker's life: a run, its outcome, the next run; it ends where the machine fails."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    with suppress(EOFError, Stopped):  # no more runs; or the parent ends, and the run has a checkpoint
        status = ""
        while status != "waiting":
            outcome = execute(pipe.recv(), out, device)
            status = outcome.status
            pipe.send(outcome)


def _end_with_parent() -> None:
    """An orphan would train on, unseen, on cores that the next sweep wants; its run goes on from the checkpoint."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
