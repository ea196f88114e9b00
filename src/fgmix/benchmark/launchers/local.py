"""Warm worker processes on this machine: torch and the datasets are loaded once a worker, not once a run."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from fgmix.benchmark.execute import Outcome, execute
from fgmix.benchmark.sweep import PlannedRun

ATTEMPTS = 3  # a run whose worker dies under it is given to another; one that kills three is failed


@dataclass
class Worker:
    """A process, the pipe to it, and what it is working on."""

    process: BaseProcess
    pipe: Connection
    device: str
    run: PlannedRun | None = None


def run_local(
    runs: Sequence[PlannedRun],
    out: Path,
    *,
    workers: int = 1,
    devices: Sequence[str] = ("auto",),
    report: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """Execute runs on `workers` processes; returns their outcomes in order of completion.

    Args:
        runs: what to execute.
        out: the sweep's folder.
        workers: processes; the cores are shared out between them.
        devices: shared out between the workers in turn, such as ("cuda:0", "cuda:1").
        report: called after each run.
    """
    waiting, attempts, outcomes = deque(runs), dict.fromkeys((run.name for run in runs), 0), []
    threads = max(1, (os.cpu_count() or 1) // workers)
    pool = [_start(out, devices[i % len(devices)], threads) for i in range(min(workers, len(runs)))]

    def finish(outcome: Outcome) -> None:
        outcomes.append(outcome)
        report(outcome)

    try:
        for worker in pool:
            _give(worker, waiting)
        while busy := {worker.pipe: worker for worker in pool if worker.run is not None}:
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                try:
                    finish(worker.pipe.recv())
                except (EOFError, ConnectionResetError):  # the process is dead; its run's lock died with it
                    _after_death(worker, waiting, attempts, finish)
                    pool[pool.index(worker)] = worker = _start(out, worker.device, threads)
                _give(worker, waiting)
    finally:
        for worker in pool:
            worker.pipe.close()  # an idle worker takes this as the end
            if worker.run is not None:
                worker.process.terminate()
            worker.process.join()
    return outcomes


def _after_death(
    worker: Worker, waiting: deque[PlannedRun], attempts: dict[str, int], finish: Callable[[Outcome], None]
) -> None:
    """Give the run of a dead worker back, or give it up."""
    worker.process.join()
    if worker.run is None:
        return
    attempts[worker.run.name] += 1
    if attempts[worker.run.name] < ATTEMPTS:
        waiting.appendleft(worker.run)
    else:
        finish(Outcome(worker.run.name, "failed", f"its worker died {ATTEMPTS} times (out of memory?)"))


def _start(out: Path, device: str, threads: int) -> Worker:
    context = multiprocessing.get_context("spawn")  # forking a process that has run torch's threads may hang
    mine, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, str(out), device, threads), daemon=True)
    process.start()
    theirs.close()  # so that the worker's death is an end of file here
    return Worker(process, mine, device)


def _give(worker: Worker, waiting: deque[PlannedRun]) -> None:
    worker.run = waiting.popleft() if waiting else None
    if worker.run is not None:
        worker.pipe.send((worker.run.name, worker.run.spec.as_dict()))


def _work(pipe: Connection, out: str, device: str, threads: int) -> None:
    """A worker's life: a run, its outcome, the next run."""
    import signal

    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    torch.set_num_threads(threads)
    while True:
        try:
            name, spec = pipe.recv()
        except EOFError:
            return
        pipe.send(execute(name, spec, out, device))
