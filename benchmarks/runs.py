"""Whole runs on features against a bare loop of torch, in CPU seconds of one process and its workers."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fgmix
from benchmarks.turns import Turns, by_turns
from fgmix.data import DomainDataset, from_arrays
from fgmix.records.schema import RunSpec
from fgmix.sweeps.design import Sweep, plan
from fgmix.sweeps.execute import execute
from fgmix.sweeps.plan import estimate_costs
from fgmix.training.devices import torch_threads

FEATURES, CLASSES, DOMAINS, PER_DOMAIN = 128, 7, 4, 500
BATCH, WIDTH = 32, 256


@dataclass(frozen=True)
class RunSpeed:
    """CPU seconds of the same training by fgmix and by the bare loop."""

    what: str
    turns: Turns


@dataclass(frozen=True)
class PlannedTime:
    """Seconds that `fgmix plan` estimates for the runs of a sweep, and those that they then take."""

    algorithm: str
    dataset: str
    planned: float
    taken: float


def measure_runs(*, steps: int = 300, many: int = 40, rounds: int = 5) -> Iterator[RunSpeed]:
    """Time a run of ERM and of FGMix, then many runs of a third of the steps, in one process and by `Sweep.run`.

    The bare loop has the same network, batch size and number of steps, and one evaluation; no average, no record.
    """
    data, short = make_features(), steps // 3
    for name in ("erm", "fgmix"):
        _train(name, 10, 0, data)  # a warm-up: imports and kernels
        turns = by_turns(
            lambda seed, name=name: _train(name, steps, seed, data),  # type: ignore[misc]
            lambda seed: train_bare(data, steps, seed),
            rounds,
            clock=count_cpu,
        )
        yield RunSpeed(f"{name}, {steps} steps", turns)

    def train_all(_: int) -> None:
        for seed in range(many):
            _train("erm", short, seed, data)

    def sweep(_: int) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "features.npz"
            np.savez(path, X=_array(data), y=_labels(data), domain=np.arange(DOMAINS).repeat(PER_DOMAIN).astype(str))
            design = Sweep(
                datasets=(str(path),), algorithms=("erm",), trials=many // DOMAINS, hparams=1, common={"steps": short}
            )
            result = design.run(Path(folder) / "runs", workers=1, device="cpu", progress=False)
            assert len(result.done) == many // DOMAINS * DOMAINS

    def bare(_: int) -> None:
        for seed in range(many):
            train_bare(data, short, seed)

    yield RunSpeed(f"{many} runs of {short} steps, one process", by_turns(train_all, bare, 3, clock=count_cpu))
    yield RunSpeed(f"{many} runs of {short} steps, sweep", by_turns(sweep, bare, 3, clock=count_cpu))


def measure_plan(cases: tuple[tuple[str, str, int], ...]) -> Iterator[PlannedTime]:
    """Compare planned times with those that the runs take in this process; a case is algorithm, dataset, steps.

    Both are in CPU seconds of one thread, which is the time on an idle core: beside other processes the time that
    passes would compare the load of two moments.
    """
    for algorithm, dataset, steps in cases:
        sweep = Sweep(datasets=(dataset,), algorithms=(algorithm,), trials=1, hparams=1, common={"steps": steps})
        with patch("time.perf_counter", time.process_time), torch_threads(1):
            costs = estimate_costs([sweep], device="cpu")
        planned = sum(each.estimate.seconds for each in costs.runs)
        with TemporaryDirectory() as out, torch_threads(1):
            started = time.process_time()
            for run in plan(sweep):
                execute(run, out, "cpu")
            yield PlannedTime(algorithm, Path(dataset).name, planned, time.process_time() - started)


def count_cpu() -> float:
    """Return the CPU seconds of this process and of its workers that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def make_features(features: int = FEATURES) -> DomainDataset:
    """Draw Gaussian classes, shifted in each domain."""
    rng = np.random.default_rng(0)
    n = DOMAINS * PER_DOMAIN
    y, domain = np.arange(n) % CLASSES, np.arange(DOMAINS).repeat(PER_DOMAIN)
    means, shifts = rng.normal(size=(CLASSES, features)), 0.7 * rng.normal(size=(DOMAINS, features))
    return from_arrays((means[y] + shifts[domain] + 2 * rng.normal(size=(n, features))).astype(np.float32), y, domain)


def train_bare(data: DomainDataset, steps: int, seed: int) -> float:
    """Train the network of `mlp` by a plain loop on all domains but the last; return the accuracy on that."""
    torch.manual_seed(seed)
    network = nn.Sequential(
        *(nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    x, y = torch.from_numpy(_array(data)).view(DOMAINS, PER_DOMAIN, -1), torch.from_numpy(_labels(data))
    y = y.view(DOMAINS, PER_DOMAIN)
    for _ in range(steps):
        drawn = [torch.randint(PER_DOMAIN, (BATCH,)) for _ in range(DOMAINS - 1)]
        batch = torch.cat([x[e, i] for e, i in enumerate(drawn)])
        labels = torch.cat([y[e, i] for e, i in enumerate(drawn)])
        loss = cross_entropy(network(batch), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float((network(x[-1]).argmax(1) == y[-1]).float().mean())


def _train(name: str, steps: int, seed: int, data: DomainDataset) -> None:
    spec = RunSpec(dataset="arrays", algorithm=name, test_domains=(data.domain_names[-1],), steps=steps, seed=seed)
    with TemporaryDirectory() as out:
        fgmix.train(spec, out, dataset=data, progress=False)


def _array(data: DomainDataset) -> np.ndarray:
    return np.concatenate([domain.inputs.clean(np.arange(len(domain))).numpy() for domain in data.domains])


def _labels(data: DomainDataset) -> np.ndarray:
    return np.concatenate([domain.y for domain in data.domains])
