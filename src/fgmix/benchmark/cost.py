"""What a sweep will cost: a few steps of each algorithm on each dataset, on this machine, before anything runs."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass

from fgmix.averaging import predictor_tensors
from fgmix.benchmark.sweep import PlannedRun
from fgmix.data import DomainDataset
from fgmix.errors import UserError
from fgmix.evaluation import evaluating, score
from fgmix.seeding import seed_torch
from fgmix.spec import RunSpec
from fgmix.training import batch_source, build_algorithm, pick_device, prepare

PHASES = (0.1, 0.5, 0.9)  # of a run: methods that change over a run (warm-up, annealing) are measured in each
EVALUATED = 128  # instances scored to time an evaluation


@dataclass(frozen=True)
class Calibration:
    """What was measured.

    Args:
        step_seconds: one training step, mean over the phases of a run.
        score_seconds: scoring one instance.
        weights_bytes: one file of weights.
    """

    step_seconds: float
    score_seconds: float
    weights_bytes: int


@dataclass(frozen=True)
class Estimate:
    """Time and disk of a run, or of many."""

    runs: int
    seconds: float
    bytes: int


def calibrate(spec: RunSpec, dataset: DomainDataset, *, device: str = "auto", repeats: int = 2) -> Calibration:
    """Time steps in three phases of a run and the scoring of a few instances; nothing is written."""
    run = prepare(spec, dataset, progress=False)
    algorithm = build_algorithm(run).to(pick_device(device)).train()
    where = next(algorithm.parameters()).device
    source = batch_source(run)
    times = []
    for phase in PHASES:
        algorithm.updates = int(phase * (run.spec.steps or 1))
        taken = []
        for step in range(repeats + 1):
            started = time.perf_counter()
            batches = [(x.to(where), y.to(where)) for x, y in source.at(step)]
            seed_torch("calibration", step)
            float(algorithm.step(batches)["loss"])  # fetched: a device's work counts, too
            taken.append(time.perf_counter() - started)
        times.append(statistics.median(taken[1:]))
    domain, split = run.dataset.domains[0], run.splits[run.dataset.domain_names[0]]
    some = split.train[:EVALUATED]
    started = time.perf_counter()
    with evaluating(algorithm):
        score(algorithm, domain, some)
    score_seconds = (time.perf_counter() - started) / len(some)
    size = sum(tensor.numel() * tensor.element_size() for tensor in predictor_tensors(algorithm).values())
    return Calibration(statistics.mean(times), score_seconds, size)


def estimate(spec: RunSpec, dataset: DomainDataset, calibration: Calibration) -> Estimate:
    """Time and disk of one run, by its number of steps and evaluations."""
    run = prepare(spec, dataset, progress=False)
    steps, every = run.spec.steps or 1, run.spec.eval_every or 1
    models = 1 if run.spec.averaging == "none" else 2
    scored = sum(
        len(split.holdout) + (len(split.train) if name not in run.sources or run.spec.evaluate_train else 0)
        for name, split in run.splits.items()
    )
    seconds = steps * calibration.step_seconds
    seconds += math.ceil(steps / every) * models * scored * calibration.score_seconds
    files = 2 * models + 2 * models * run.spec.snapshots  # best and last, and the snapshots
    return Estimate(1, seconds, files * calibration.weights_bytes)


def total(estimates: Iterable[Estimate]) -> Estimate:
    """The sum."""
    runs, seconds, size = 0, 0.0, 0
    for each in estimates:
        runs, seconds, size = runs + each.runs, seconds + each.seconds, size + each.bytes
    return Estimate(runs, seconds, size)


def fitting(runs: list[tuple[PlannedRun, Estimate]], budget_seconds: float, workers: int = 1) -> list[PlannedRun]:
    """The first runs, in the sweep's order, that end within the budget on so many workers."""
    left, fit = budget_seconds * workers, []
    for run, each in runs:
        left -= each.seconds
        if left < 0:
            break
        fit.append(run)
    return fit


def parse_duration(text: str) -> float:
    """Seconds of a text such as "8h", "90m", "1.5d", "40s".

    >>> parse_duration("1h30m")
    5400.0
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)([dhms])", text.strip().lower())
    if not parts or "".join(n + u for n, u in parts) != text.strip().lower().replace(" ", ""):
        raise UserError(f"Expected a duration such as 8h, 90m or 1h30m. Found {text!r}.")
    return sum(float(n) * {"d": 86400, "h": 3600, "m": 60, "s": 1}[unit] for n, unit in parts)


def readable_duration(seconds: float) -> str:
    """A duration for people.

    >>> readable_duration(5400), readable_duration(42)
    ('1 h 30 min', '42 s')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours / 24:.1f} days"
