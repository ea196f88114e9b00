"""Execute one run of a sweep: the same function for every launcher."""

from __future__ import annotations

import gc
import traceback
from functools import lru_cache
from pathlib import Path

import torch

from fgmix.data import DomainDataset, LoadOptions, load
from fgmix.errors import MachineError, UserError, failure_of_machine
from fgmix.logs import Log
from fgmix.records.files import exclusive, make_folder
from fgmix.records.plans import Outcome, failed, has_failed, read_error
from fgmix.records.store import RunBusy, RunFolder
from fgmix.sweeps.attempts import put_off
from fgmix.sweeps.design import PlannedRun
from fgmix.training.devices import pick_device
from fgmix.training.loop import train
from fgmix.training.prepare import load_options
from fgmix.training.resolve import resolve
from fgmix.training.signals import Stopped


def execute(run: PlannedRun, out: str, device: str = "auto") -> Outcome:
    """Train (or resume, or read) one planned run; an error is recorded in its folder, not raised.

    A run that has failed, here or in another process, is not tried again while its error.json exists. The outcome is
    "busy" if another process works on the run or on its trunk, "waiting" if the machine failed, and "stopped" after a
    signal: the run then has a checkpoint. The memory of the run is freed afterwards, also for other runs on its GPU.

    Args:
        run: what to train.
        out: the sweep's folder.
        device: see `fgmix.train`.
    """
    folder = Path(out) / run.name
    try:
        return _executed(run, folder, device)
    except RunBusy:
        return Outcome(run.name, "busy")
    except MachineError as error:
        return put_off(folder, error, device)
    except Stopped as stopped:
        return Outcome(run.name, "stopped", str(stopped))
    finally:
        _release_memory()


def _executed(run: PlannedRun, folder: Path, device: str) -> Outcome:
    try:
        if has_failed(folder):  # checked first, to avoid loading the data
            return Outcome(run.name, "failed", read_error(folder))
        data = _checked_before(run, device)
        if resolve(run.spec, data).name != run.name:
            raise UserError(f"Expected the data that {run.name} was planned for. Found others. Plan the sweep again.")
        # `train` releases the run's own lock before its error is known: this lock is held until the error is recorded.
        with exclusive(RunFolder(make_folder(folder)).attempt_lock, RunBusy(f"Another process tries {run.name}.")):
            return _attempt(run, data, folder, device)
    except RunBusy:
        raise
    except Exception as error:
        return _failed(folder, error)


def _checked_before(run: PlannedRun, device: str) -> DomainDataset:
    """The run's data. They and the device were available when the sweep was planned: an error now is the machine's."""
    try:
        pick_device(device)
        return _dataset(run.spec.dataset, load_options(run.spec, progress=False))
    except Exception as error:
        raise MachineError(str(error)) from error


def _attempt(run: PlannedRun, data: DomainDataset, folder: Path, device: str) -> Outcome:
    if has_failed(folder):  # in another process, since the first check
        return Outcome(folder.name, "failed", read_error(folder))
    try:
        with Log(run.log, folder.parent) as log:
            record = train(
                run.spec,
                folder.parent,
                dataset=data,
                device=device,
                progress=False,
                trunk=run.trunk,
                on_evaluation=log,
            )
            log.complete(record)
    except RunBusy:
        raise
    except Exception as error:
        return _failed(folder, error)
    return Outcome(folder.name, "done")


def _failed(folder: Path, error: Exception) -> Outcome:
    """Record a failure of the run; raises MachineError if the machine failed, or if the failure cannot be recorded."""
    if machine := failure_of_machine(error):
        raise machine from error
    return failed(folder, f"{type(error).__name__}: {error}", traceback.format_exc())


def _release_memory() -> None:
    gc.collect()  # models contain reference cycles: through hooks, optimisers, closures
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


@lru_cache(maxsize=4)  # a worker keeps loaded datasets: hundreds of runs share them
def _dataset(dataset: str, options: LoadOptions) -> DomainDataset:
    return load(dataset, options)
