"""Runs as Ray tasks, on a cluster that is there or on one that is started here.

Every node must see the sweep's folder and the data under the same path (a shared filesystem with file locks), and have
fgmix installed. A run whose node dies is retried on another and goes on from its checkpoint in that folder.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from fgmix.data import names as dataset_names
from fgmix.errors import UserError, bad_value
from fgmix.runs.spec import RunSpec
from fgmix.sweeps.execute import execute
from fgmix.sweeps.folder import Outcome, failed
from fgmix.sweeps.running import Report
from fgmix.sweeps.sweep import PlannedRun

RETRIES = 10  # of a run whose node or process dies: on preemptible nodes it is rarely the run's fault
MAX_PORT = 65535
POLL_SECONDS = 1.0  # between looks at what is ready: one look costs time in proportion to the runs left


def run_ray(
    runs: Sequence[PlannedRun],
    out: Path,
    report: Report = lambda _: None,
    *,
    address: str | None = None,
    cpus: int = 1,
    gpus: float = 0,
    device: str = "auto",
) -> list[Outcome]:
    """Execute runs as Ray tasks; returns their outcomes in order of completion.

    Args:
        runs: what to execute.
        out: the sweep's folder, which every node sees under this path.
        report: called after each run.
        address: of a running cluster, such as "10.0.0.1:6379" or "auto"; without it, one is started on this machine.
        cpus: cores of a run, and torch's threads in it.
        gpus: GPUs of a run; a fraction lets several runs share one.
        device: "auto" is the GPU that Ray gives a run, if it gives one; or "cpu".
    """
    started = _connect(address)
    task = ray.remote(_task).options(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)
    folder = str(out.resolve())
    pending = {task.remote(replace(run, spec=_everywhere(run.spec)), folder, cpus, device): run for run in runs}
    outcomes = []
    try:
        while pending:
            ready, _ = ray.wait(list(pending), num_returns=len(pending), timeout=POLL_SECONDS)
            for reference in ready:
                outcomes.append(_outcome(reference, out / pending.pop(reference).name))
                report(outcomes[-1])
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)
        if started:
            ray.shutdown()
    return outcomes


def _connect(address: str | None) -> bool:
    """Join the cluster, or start one; False where this process had joined one before."""
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster that we start tells nobody about it
    try:
        if address and ":" in address:
            _knock(address)
        # "local": without an address Ray would first look for the last cluster it knows of, for minutes if that died.
        ray.init(address=address or "local", include_dashboard=None if address else False, log_to_driver=False)
    except OSError as error:
        raise UserError(
            f"Expected a Ray cluster at {address}. It cannot be reached ({error}). Start one with `ray start --head`, "
            "or leave --address out."
        ) from error
    return True


def _knock(address: str) -> None:
    """Fail at once where nobody listens: Ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdecimal() or int(port) > MAX_PORT:
        raise bad_value("address", "HOST:PORT of a Ray cluster, such as 10.0.0.1:6379", address)
    socket.create_connection((host, int(port)), timeout=10).close()


def _task(run: PlannedRun, out: str, threads: int, device: str) -> Outcome:
    """A run inside one of Ray's processes, which are kept for the next run: torch and the data stay loaded."""
    import torch

    torch.set_num_threads(threads)
    return execute(run, out, device)


def _outcome(reference: Any, folder: Path) -> Outcome:
    try:
        outcome: Outcome = ray.get(reference)
    except RayError as error:
        return failed(folder, f"Ray gave it up after {RETRIES} retries ({type(error).__name__})", str(error))
    return outcome


def _everywhere(spec: RunSpec) -> RunSpec:
    """The spec with absolute paths: Ray's processes do not work where this one does."""
    places = {"data_root": spec.data_root, "weights": spec.weights}
    if spec.dataset not in dataset_names():
        places["dataset"] = spec.dataset
    absolute: dict[str, Any] = {name: str(Path(place).resolve()) for name, place in places.items() if place}
    return replace(spec, **absolute)
