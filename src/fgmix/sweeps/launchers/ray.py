"""Runs on Ray actors, one for each slot of a running cluster or of one that is started here.

A slot is the cores and GPUs of a run on a node. Its actor loads torch and the data once and executes one run after
another, as described in `launchers`. Every node needs fgmix, and the sweep's folder and the data under the same path.
Nodes may join and leave: new ones get actors, and a run whose node dies resumes on another from its checkpoint.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from msgspec import structs
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fgmix import logs
from fgmix.data import names as dataset_names
from fgmix.data.loading import share_cores, usable_cores
from fgmix.errors import UserError, bad_value
from fgmix.records.schema import RunSpec
from fgmix.records.status import Outcome
from fgmix.sweeps.design import PlannedRun
from fgmix.sweeps.execute import Report, execute
from fgmix.sweeps.launchers import Pool, Slot

MAX_PORT = 65535
LONGEST = 500  # characters of Ray's own messages
POLL_SECONDS = 1.0  # between checks of the nodes
SECRETS = ("TOKEN", "KEY", "PASSWORD")  # ends of names of variables that are not passed on
PLACES = ("FGMIX_CACHE", "FGMIX_DATA", "HF_HOME", "HF_HUB_CACHE", "TORCH_HOME", "XDG_CACHE_HOME")  # of data and weights


def run_ray(
    runs: Sequence[PlannedRun],
    out: Path,
    report: Report = lambda _: None,
    *,
    address: str | None = None,
    cpus: int = 1,
    gpus: float | None = None,
    device: str = "auto",
) -> list[Outcome]:
    """Execute runs on Ray actors; return their outcomes in order of completion. Options are those of `Sweep.run`."""
    started = _connect(address, show_notes=any(run.log for run in runs))
    try:
        pool = RayPool(runs, out, report, _check_needs(cpus, gpus, device))
        pool.run_all()
        if pool.not_started and not pool.outcomes:
            raise UserError(
                f"Expected workers to start on the Ray cluster. None did: {pool.not_started} Check that fgmix is "
                "installed on its nodes."
            )
        return pool.outcomes
    finally:
        if started:
            ray.shutdown()


@dataclass(frozen=True)
class Needs:
    """Resources that a run needs on a node."""

    cpus: int
    gpus: float
    device: str  # never "auto" with GPUs, so that a run with a GPU cannot fall back to the CPU

    def count_slots(self, resources: dict[str, float]) -> int:
        """Count the runs that fit on a node; Ray does not combine fractions of two GPUs."""
        by_cores = int(resources.get("CPU", 0) / self.cpus)
        if not self.gpus:
            return by_cores
        count = resources.get("GPU", 0)
        by_gpus = int(count / self.gpus) if self.gpus >= 1 else int(count) * int(1 / self.gpus)
        return min(by_cores, by_gpus)


def _check_needs(cpus: int, gpus: float | None, device: str) -> Needs:
    """Check the resources of a run against the cluster: Ray would wait forever for what no node has."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if gpus is None:
        gpus = 1.0 if device != "cpu" and any(node.get("GPU") for node in nodes) else 0.0
    if gpus > 1 and gpus != int(gpus):
        raise bad_value("gpus", "a fraction of one GPU or a whole number", gpus)
    needs = Needs(cpus, gpus, "cuda" if gpus and device == "auto" else device)
    if not any(needs.count_slots(node) for node in nodes):
        found = "; ".join(f"{node.get('CPU', 0):g} cores and {node.get('GPU', 0):g} GPUs" for node in nodes)
        raise UserError(
            f"Expected a node of the Ray cluster with {cpus} cores and {gpus:g} GPUs for a run. Found nodes with "
            f"{found}. Change --cpus and --gpus, or add nodes."
        )
    return needs


class Actor:
    """A worker in its own process, with the cores and GPUs of a slot."""

    def __init__(self, out: str, threads: int, device: str) -> None:
        import torch

        torch.set_num_threads(threads)
        share_cores(usable_cores() // threads)  # the number of actors that fit on the node
        self.out, self.device = out, device

    def ready(self) -> None:
        """Answer when the actor has started."""

    def execute(self, run: PlannedRun) -> Outcome:
        return execute(run, self.out, self.device)


@dataclass
class Worker:
    """An actor, and its pending answer: that it has started, or the outcome of its run."""

    actor: Any
    answer: Any
    is_ready: bool = False


class RayPool(Pool[Worker]):
    """Actors; a place is a node."""

    max_deaths = 10  # on preemptible nodes they are rarely caused by the run
    cause_of_death = "it may have run out of memory, or its nodes died"

    def __init__(self, runs: Sequence[PlannedRun], out: Path, report: Report, needs: Needs) -> None:
        super().__init__(runs, out, report)
        self.needs = needs
        self.not_started = ""  # why the last actor that failed to start did so
        self.hosts: dict[str, str] = {}

    def update_slots(self) -> None:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        alive = {node["NodeID"]: node["Resources"] for node in nodes}
        self.hosts |= {node["NodeID"]: node["NodeManagerHostname"] for node in nodes}
        self.slots = [slot for slot in self.slots if slot.place in alive or slot.worker is not None]
        there = Counter(slot.place for slot in self.slots)
        for node, resources in alive.items():
            missing = self.needs.count_slots(resources) - there[node]
            self.slots += [Slot(node) for _ in range(missing)]

    def start(self, place: str) -> Worker:
        actor = ray.remote(Actor).options(
            num_cpus=self.needs.cpus,
            num_gpus=self.needs.gpus,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=place, soft=False),
            runtime_env={"env_vars": _select_variables()},
        )
        made = actor.remote(str(self.out.resolve()), self.needs.cpus, self.needs.device)
        return Worker(made, made.ready.remote())

    def is_ready(self, worker: Worker) -> bool:
        return worker.is_ready

    def describe(self, place: str) -> str:
        return f"node {self.hosts[place]}"

    def send(self, worker: Worker, run: PlannedRun) -> None:
        worker.answer = worker.actor.execute.remote(replace(run, spec=_make_paths_absolute(run.spec)))

    def receive(self, slots: Sequence[Slot[Worker]]) -> Iterator[tuple[Slot[Worker], Outcome | None]]:
        awaited = {slot.worker.answer: (slot, slot.worker) for slot in slots if slot.worker is not None}
        ready, _ = ray.wait(list(awaited), num_returns=1, timeout=POLL_SECONDS)
        for reference in ready:
            slot, worker = awaited[reference]
            try:
                answer = ray.get(reference)
            except RayError as error:
                if slot.run is not None:
                    yield slot, None
                else:
                    slot.worker = None
                    self.not_started = f"{' '.join(str(error).split())[:LONGEST]}."
                    self.close(slot, self.not_started)
                continue
            if slot.run is not None:
                yield slot, answer
            worker.is_ready = True

    def stop(self, workers: Sequence[Worker], seconds: float = 0.0) -> None:  # noqa: ARG002
        for worker in workers:
            ray.kill(worker.actor)


def _connect(address: str | None, *, show_notes: bool) -> bool:
    """Connect to the cluster, or start one; return False if this process is already connected.

    With `show_notes`, what the actors print is printed here, such as the note that a log has failed.
    """
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster that we start sends no usage statistics
    try:
        if address and ":" in address:
            _check_reachable(address)
        # "local": without an address Ray would first try to reach the last cluster, for minutes if that has died.
        ray.init(address=address or "local", include_dashboard=None if address else False, log_to_driver=show_notes)
    except OSError as error:
        raise UserError(
            f"Expected a Ray cluster at {address}. It cannot be reached ({error}). Start one with `ray start --head`, "
            "or leave --address out."
        ) from error
    return True


def _check_reachable(address: str) -> None:
    """Fail immediately if nothing listens at the address: Ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdecimal() or int(port) > MAX_PORT:
        raise bad_value("address", "HOST:PORT of a Ray cluster, such as 10.0.0.1:6379", address)
    socket.create_connection((host, int(port)), timeout=10).close()


def _select_variables() -> dict[str, str]:
    """Select environment variables for the actors, since nodes have their own environments with other caches.

    Without secrets, which Ray would show to all users of the cluster: log in on the nodes, or in a shared HF_HOME.
    """
    given = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("FGMIX_", "HF_", *logs.VARIABLES)) and not name.endswith(SECRETS)
    }
    return given | {name: os.path.abspath(os.environ[name]) for name in PLACES if os.environ.get(name)}


def _make_paths_absolute(spec: RunSpec) -> RunSpec:
    """Make the paths of a spec absolute: Ray's processes have another working directory."""
    places = {"data_root": spec.data_root, "weights": spec.weights}
    if spec.dataset not in dataset_names():
        places["dataset"] = spec.dataset
    absolute: dict[str, Any] = {name: str(Path(place).resolve()) for name, place in places.items() if place}
    return structs.replace(spec, **absolute)
