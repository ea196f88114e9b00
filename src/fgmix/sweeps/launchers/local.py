"""Warm worker processes on this machine: torch and the datasets are loaded once a worker, not once a run."""

from __future__ import annotations

import multiprocessing
import os
import signal
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
from fgmix.sweeps.execute import execute
from fgmix.sweeps.folder import Outcome, failed
from fgmix.sweeps.running import Report
from fgmix.sweeps.sweep import PlannedRun

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
    report: Report = lambda _: None,
    *,
    workers: int = 1,
    devices: Sequence[str] = ("auto",),
) -> list[Outcome]:
    """Execute runs on `workers` processes; returns their outcomes in order of completion.

    Args:
        runs: what to execute.
        out: the sweep's folder.
        report: called after each run.
        workers: processes; the threads that torch would take here are shared out between them.
        devices: shared out between the workers in turn, such as ("cuda:0", "cuda:1"); "auto" is every GPU there is.
    """
    import torch

    waiting, deaths, outcomes = deque(runs), Counter[str](), list[Outcome]()
    threads = max(1, torch.get_num_threads() // workers)
    devices = _every_gpu() if tuple(devices) == ("auto",) else devices
    pool = [_start(out, devices[i % len(devices)], threads) for i in range(min(workers, len(runs)))]

    def finish(outcome: Outcome) -> None:
        outcomes.append(outcome)
        report(outcome)

    try:
        while busy := _give(pool, waiting):
            for pipe in wait([worker.pipe for worker in busy]):
                worker = next(worker for worker in busy if worker.pipe is pipe)
                run, worker.run = worker.run, None
                try:
                    finish(worker.pipe.recv())
                except (EOFError, ConnectionResetError):  # the process is dead; its run's lock died with it
                    worker.process.join()
                    pool[pool.index(worker)] = _start(out, worker.device, threads)
                    if run is None:
                        continue
                    deaths[run.name] += 1
                    if deaths[run.name] < ATTEMPTS:
                        waiting.appendleft(run)
                    else:
                        reason = f"its worker process died {ATTEMPTS} times (out of memory?)"
                        finish(failed(out / run.name, reason))
    finally:
        _stop(pool)
    return outcomes


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


def _start(out: Path, device: str, threads: int) -> Worker:
    context = multiprocessing.get_context("spawn")  # forking a process that has run torch's threads may hang
    mine, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, str(out), device, threads), daemon=True)
    process.start()
    theirs.close()  # so that the worker's death is an end of file here
    return Worker(process, mine, device)


def _give(pool: Sequence[Worker], waiting: deque[PlannedRun]) -> list[Worker]:
    """Give every idle worker a run while there are any; returns those that have one."""
    for worker in pool:
        if worker.run is None and waiting:
            worker.run = waiting.popleft()
            with suppress(BrokenPipeError):  # a worker that has died: its pipe says so when it is read
                worker.pipe.send(worker.run)
    return [worker for worker in pool if worker.run is not None]


def _stop(pool: Sequence[Worker]) -> None:
    for worker in pool:
        worker.pipe.close()  # an idle worker takes this as the end
        if worker.run is not None:
            worker.process.terminate()
    for worker in pool:
        worker.process.join()


def _work(pipe: Connection, out: str, device: str, threads: int) -> None:
    """A worker's life: a run, its outcome, the next run."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    with suppress(EOFError):
        while True:
            pipe.send(execute(pipe.recv(), out, device))


def _end_with_parent() -> None:
    """An orphan would train on, unseen, on cores that the next sweep wants; its run goes on from the checkpoint."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
