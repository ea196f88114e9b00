"""Persistent worker processes on this machine: torch and datasets are loaded once per worker, not once per run."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType

from fgmix.data.loading import share_cores
from fgmix.errors import UserError, bad_value, unknown
from fgmix.records.status import Outcome
from fgmix.sweeps.design import PlannedRun
from fgmix.sweeps.execute import Report, execute
from fgmix.sweeps.launchers import GRACE, Pool, Slot
from fgmix.training.devices import pick_device
from fgmix.training.signals import stop_on_signal


@dataclass
class Worker:
    """A process and the pipe to it."""

    process: BaseProcess
    pipe: Connection


def run_local(
    runs: Sequence[PlannedRun],
    out: Path,
    report: Report = lambda _: None,
    *,
    workers: int | None = None,
    devices: Sequence[str] = ("auto",),
    runs_per_gpu: int = 1,
) -> list[Outcome]:
    """Execute runs in worker processes; return their outcomes in order of completion. Options are those of `Sweep.run`.

    Torch's threads are divided among the workers.
    """
    import torch

    places = assign_devices(devices, workers, runs_per_gpu)
    threads = max(1, torch.get_num_threads() // len(places))
    return LocalPool(runs, out, report, places, threads).run_all()


def assign_devices(devices: Sequence[str], workers: int | None = None, runs_per_gpu: int = 1) -> list[str]:
    """Assign a device to each worker.

    >>> assign_devices(["cuda:0", "cuda:1"], runs_per_gpu=2)
    ['cuda:0', 'cuda:1', 'cuda:0', 'cuda:1']
    >>> assign_devices(["cpu"]), assign_devices(["cpu"], workers=2)
    (['cpu'], ['cpu', 'cpu'])
    """
    import torch

    every_gpu = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    names = every_gpu if tuple(devices) == ("auto",) else list(devices)
    are_gpus = bool(names) and all(name.startswith("cuda") for name in names)
    if runs_per_gpu > 1 and not are_gpus:
        raise UserError(
            f"Expected GPUs that hold {runs_per_gpu} runs each. Found {', '.join(names) or 'none'} here. Leave "
            "`runs_per_gpu` out, or set `workers`."
        )
    names = names or ["auto"]
    count = workers or (len(names) * runs_per_gpu if are_gpus else 1)
    return [names[i % len(names)] for i in range(count)]


def check_devices(devices: Sequence[str]) -> None:
    """Raise an error for a missing device before the runs start. GPUs are only counted: their memory is not used."""
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


class LocalPool(Pool[Worker]):
    """Worker processes on this machine, with so many threads of torch each; a place is a device."""

    def __init__(
        self, runs: Sequence[PlannedRun], out: Path, report: Report, places: Sequence[str], threads: int
    ) -> None:
        super().__init__(runs, out, report, places)
        self.threads = threads

    def start(self, place: str) -> Worker:
        context = multiprocessing.get_context("spawn")  # forking a process that has run torch's threads may hang
        mine, theirs = context.Pipe()
        arguments = theirs, str(self.out), place, self.threads, len(self.slots)
        process = context.Process(target=_work, args=arguments, daemon=True)
        with _block_slurm_signal(), _hide_unguarded_script():
            process.start()
        theirs.close()  # so that the end of the process is an end of file here
        return Worker(process, mine)

    def send(self, worker: Worker, run: PlannedRun) -> None:
        with suppress(BrokenPipeError):  # the worker has died, which `receive` detects
            worker.pipe.send(run)

    def receive(self, slots: Sequence[Slot[Worker]]) -> Iterator[tuple[Slot[Worker], Outcome | None]]:
        by_pipe = {slot.worker.pipe: slot for slot in slots if slot.worker is not None}
        for pipe in wait(list(by_pipe)):
            assert isinstance(pipe, Connection)
            try:
                yield by_pipe[pipe], pipe.recv()
            except (EOFError, ConnectionResetError):  # the process has died, which has released its run's lock
                yield by_pipe[pipe], None

    def stop(self, workers: Sequence[Worker], seconds: float = 0.0) -> None:
        for worker in workers:
            worker.pipe.close()  # ends an idle worker
            if seconds:
                worker.process.terminate()
        deadline = time.monotonic() + seconds
        for worker in workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.process.kill()  # a process that has lost its GPU may not end by itself
            worker.process.join()


@contextmanager
def _block_slurm_signal() -> Iterator[None]:
    """Block SIGUSR2 for processes started within the block: Slurm sends it to all of a job, and it would kill them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _hide_unguarded_script() -> Iterator[None]:
    """Hide a script from the processes that it starts if it does not say `if __name__ == "__main__"`.

    They would run it, and so the sweep, again. One that says so is imported, with the methods that it registers.
    """
    script = sys.modules["__main__"]
    file = getattr(script, "__file__", None)
    with suppress(OSError):
        if file and "__main__" not in Path(file).read_text(errors="replace"):
            sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _work(pipe: Connection, out: str, device: str, threads: int, workers: int) -> None:
    """Receive a run, execute it, send the outcome, until the machine fails or this worker should stop."""
    import torch

    device = _hide_other_gpus(device)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    share_cores(workers)
    with suppress(EOFError, BrokenPipeError), stop_on_signal() as stop:
        status = ""
        while status != "waiting" and not stop.reason:
            outcome = execute(pipe.recv(), out, device)
            status = outcome.status
            pipe.send(outcome)


def _hide_other_gpus(device: str) -> str:
    """Hide the other GPUs from this process, which would use memory of the first; return the device's new name."""
    kind, _, index = device.partition(":")
    if kind != "cuda" or not index:
        return device
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [index] if visible is None else visible.split(",")[int(index) :]
    os.environ["CUDA_VISIBLE_DEVICES"] = names[0] if names else ""
    return kind


def _end_with_parent() -> None:
    """End this process after its parent, or it would occupy cores that the next sweep needs; its run can be resumed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os._exit(1)
