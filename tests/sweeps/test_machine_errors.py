"""Errors of the machine are not errors of the run: the run waits, the worker is judged by its next run."""

from __future__ import annotations

import errno
import json
import os
import platform
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from fgmix.errors import MachineError
from fgmix.records.status import Outcome, read_status, state_of
from fgmix.sweeps import execute as module
from fgmix.sweeps.design import PlannedRun, plan
from fgmix.sweeps.execute import _load_dataset, execute, run_sweeps
from fgmix.training.loop import _Loop
from fgmix.training.signals import Stopped
from sweeps.toys import Here, make_data, records, sessions, toy_sweep


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number), "/data/PACS")


def caused_by(cause: Exception) -> Exception:
    error = ValueError("the weights cannot be read")
    error.__cause__ = cause
    return error


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Errors that training raises, one after the other; without any it trains."""
    train, errors = module.train, list[Exception]()

    def failing(*args: Any, **options: Any) -> Any:
        if errors:
            raise errors.pop(0)
        return train(*args, **options)

    monkeypatch.setattr(module, "train", failing)
    monkeypatch.setattr(module, "_release_memory", lambda: None)  # a fifth of a second in a process of many tests
    return errors


# What is the machine's


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (os_error(errno.ENOSPC), "/data/PACS"),
        (os_error(errno.EDQUOT), "/data/PACS"),
        (os_error(errno.EIO), "Input/output error"),
        (os_error(errno.ESTALE), "Stale file handle"),
        (os_error(errno.EROFS), "Read-only file system"),
        (RuntimeError("CUDA error: device lost\nCompile with TORCH_USE_CUDA_DSA"), "CUDA error: device lost"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), "CUDNN_STATUS"),
        (MachineError("Expected the hub to answer."), "hub"),
        (caused_by(os_error(errno.EIO)), "Input/output error"),
    ],
)
def test_a_run_that_the_machine_fails_waits(
    data: str, tmp_path: Path, broken: list[Exception], error: Exception, name: str
) -> None:
    planned = plan(toy_sweep(data))[0]
    broken.append(error)
    outcome = execute(planned, str(tmp_path), "cpu")
    assert outcome.status == "waiting"
    assert name in outcome.error
    assert state_of(tmp_path / planned.name) == "waiting"
    (line,) = (tmp_path / planned.name / "attempts.jsonl").read_text().splitlines()
    noted = json.loads(line)
    assert (noted["host"], noted["device"], noted["reason"]) == (platform.node(), "cpu", outcome.error)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"),  # of a batch that is too large
        os_error(errno.EACCES),
        RuntimeError("shapes differ"),
        MemoryError(),
    ],
)
def test_any_other_error_is_the_runs(data: str, tmp_path: Path, broken: list[Exception], error: Exception) -> None:
    planned = plan(toy_sweep(data))[0]
    broken.append(error)
    assert execute(planned, str(tmp_path), "cpu").status == "failed"
    assert not (tmp_path / planned.name / "attempts.jsonl").exists()


def test_data_that_are_gone_since_the_plan_are_the_machines(tmp_path: Path) -> None:
    planned = plan(toy_sweep(data := make_data(tmp_path)))[0]
    _load_dataset.cache_clear()
    Path(data).rename(tmp_path / "unmounted.npz")
    outcome = execute(planned, str(tmp_path), "cpu")
    assert (outcome.status, "Found nothing there" in outcome.error) == ("waiting", True)
    (tmp_path / "unmounted.npz").rename(data)
    assert execute(planned, str(tmp_path), "cpu").status == "done"


def test_a_device_that_is_gone_is_the_machines(data: str, tmp_path: Path) -> None:
    planned = plan(toy_sweep(data))[0]
    assert execute(planned, str(tmp_path), "cuda:7").status == "waiting"


def test_a_failure_that_cannot_be_recorded_waits(
    data: str, tmp_path: Path, broken: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise MachineError("The disk is full.")

    planned = plan(toy_sweep(data))[0]
    broken.append(RuntimeError("shapes differ"))
    monkeypatch.setattr(module, "record_failure", full)
    assert execute(planned, str(tmp_path), "cpu") == Outcome(planned.name, "waiting", "The disk is full.")


# What follows from it


def test_a_sweep_stops_tells_why_and_resumes(data: str, tmp_path: Path, broken: list[Exception]) -> None:
    out, sweep = tmp_path / "out", toy_sweep(data, test_domains=("ct", "mr"))
    broken.append(os_error(errno.ENOSPC))
    result = run_sweeps([sweep], out, Here(), progress=False)
    assert (len(result.done), len(result.waiting), result.failed) == (1, 1, ())
    assert result.stopped_by.startswith("Expected to write /data/PACS. The disk is full.")
    (waiting,) = result.waiting
    assert read_status(out).lines()[-1] == f"waiting: {waiting}: {result.stopped_by} (attempt 1, on {platform.node()})"
    assert not list(out.glob("*/error.json"))
    run_sweeps([sweep], out, Here(), progress=False)
    run_sweeps([sweep], tmp_path / "undisturbed", Here(), progress=False)
    assert records(out) == records(tmp_path / "undisturbed")


def test_a_signal_ends_a_sweep(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run has a checkpoint of the step that it was at."""
    step, sweep = _Loop._step, toy_sweep(data, test_domains=("us",))

    def signalled(self: _Loop, batches: Any) -> None:
        step(self, batches)
        if self.state.step == 7:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(_Loop, "_step", signalled)
        with pytest.raises(Stopped, match=r"Stopped by SIGTERM\. Rerun the same command to resume\."):
            run_sweeps([sweep], tmp_path / "out", Here(), progress=False)
    run_sweeps([sweep], tmp_path / "out", Here(), progress=False)
    assert [(each["first_step"], each["last_step"]) for each in sessions(tmp_path / "out")] == [(0, 7), (7, 12)]
    run_sweeps([sweep], tmp_path / "undisturbed", Here(), progress=False)
    assert records(tmp_path / "out") == records(tmp_path / "undisturbed")


def test_retrying_forgets_the_attempts(data: str, tmp_path: Path, broken: list[Exception]) -> None:
    planned: PlannedRun = plan(toy_sweep(data, test_domains=("us",)))[0]
    broken.append(os_error(errno.EIO))
    execute(planned, str(tmp_path), "cpu")
    assert (tmp_path / planned.name / "attempts.jsonl").exists()
    run_sweeps([toy_sweep(data, test_domains=("us",))], tmp_path, Here(), retry_failed=True, progress=False)
    assert not (tmp_path / planned.name / "attempts.jsonl").exists()
