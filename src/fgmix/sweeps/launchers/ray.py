"""Runs as Ray tasks, on a cluster that is there or on one that is started here.

Every node must see the sweep's folder and the data under the same path (a shared filesystem with file locks), and have
fgmix installed. A run whose node dies is retried on another and resumes from its checkpoint in that folder; one that
a machine fails is given to another node, and a node that fails two runs in a row is given no more.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fgmix.data import names as dataset_names
from fgmix.errors import UserError, bad_value
from fgmix.runs.spec import RunSpec
from fgmix.sweeps.attempts import Health
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
    task, needs = ray.remote(_task), {"num_cpus": cpus, "num_gpus": gpus, "max_retries": RETRIES}
    folder = str(out.resolve())

    def submit(run: PlannedRun, **where: Any) -> Any:
        return task.options(**needs, **where).remote(replace(run, spec=_everywhere(run.spec)), folder, cpus, device)

    pending = {submit(run): run for run in runs}
    outcomes, ill = [], set[str]()
    try:
        while pending:
            ready, _ = ray.wait(list(pending), num_returns=len(pending), timeout=POLL_SECONDS)
            for reference in ready:
                run = pending.pop(reference)
                answer = _answer(reference, out / run.name)
                outcomes.append(answer.outcome)
                report(answer.outcome)
                if answer.is_ill:
                    ill.add(answer.node)
                if answer.outcome.status == "waiting" and (well := _nodes() - ill):
                    others = sorted(well - {answer.node} or well)
                    pending[submit(run, **_at(others[len(outcomes) % len(others)]))] = run
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


@dataclass(frozen=True)
class Answer:
    """What a task gives: what became of its run, the node that it ran on, and whether that should take no more."""

    outcome: Outcome
    node: str = ""
    is_ill: bool = False


@lru_cache  # one for each of Ray's processes
def _health(out: str) -> Health:
    return Health(Path(out))


def _task(run: PlannedRun, out: str, threads: int, device: str) -> Answer:
    """A run inside one of Ray's processes, which are kept for the next run: torch and the data stay loaded."""
    import torch

    torch.set_num_threads(threads)
    health, node = _health(out), ray.get_runtime_context().get_node_id()
    if health.is_ill:
        return Answer(Outcome(run.name, "waiting", health.reason), node, is_ill=True)
    outcome = execute(run, out, device)
    health.note(outcome)
    return Answer(outcome, node, health.is_ill)


def _answer(reference: Any, folder: Path) -> Answer:
    try:
        answer: Answer = ray.get(reference)
    except RayError as error:
        reason = f"Ray gave it up after {RETRIES} retries ({type(error).__name__})"
        return Answer(failed(folder, reason, str(error)))
    return answer


def _nodes() -> set[str]:
    """Ids of the nodes that run tasks."""
    return {node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")}


def _at(node: str) -> dict[str, Any]:
    """The options of a task that should run on a node; another will do where that one is gone."""
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=node, soft=True)}


def _everywhere(spec: RunSpec) -> RunSpec:
    """The spec with absolute paths: Ray's processes do not work where this one does."""
    places = {"data_root": spec.data_root, "weights": spec.weights}
    if spec.dataset not in dataset_names():
        places["dataset"] = spec.dataset
    absolute: dict[str, Any] = {name: str(Path(place).resolve()) for name, place in places.items() if place}
    return replace(spec, **absolute)
