"""What a sweep will cost: a few steps of each algorithm on each dataset, on this machine, before anything runs."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fgmix.averaging import predictor_tensors
from fgmix.benchmark.durations import readable_duration
from fgmix.benchmark.sweep import PlannedRun, Sweep
from fgmix.data import DomainDataset
from fgmix.evaluation import evaluating, score
from fgmix.seeding import seed_torch
from fgmix.spec import RunSpec, resolve
from fgmix.training import batch_source, build_algorithm, name_run, pick_device, prepare

PHASES = (0.1, 0.5, 0.9)  # of a run: methods that change over a run (warm-up, annealing) are measured in each
EVALUATED = 128  # instances scored to time an evaluation


@dataclass(frozen=True)
class Calibration:
    """What was measured.

    Args:
        step_seconds: one training step, mean over the phases of a run.
        batch_size: of that step, per domain.
        score_seconds: scoring one instance.
        weights_bytes: one file of weights.
    """

    step_seconds: float
    batch_size: int
    score_seconds: float
    weights_bytes: int


@dataclass(frozen=True)
class Estimate:
    """Time and disk of a run, or of many."""

    runs: int
    seconds: float
    bytes: int


@dataclass(frozen=True)
class CostedRun:
    """A run and what it will cost."""

    run: PlannedRun
    dataset: str
    estimate: Estimate


def cost(sweeps: Iterable[Sweep], *, device: str = "auto") -> list[CostedRun]:
    """Every run of the sweeps with its cost; the first run of each algorithm on each dataset is calibrated."""
    calibrations: dict[tuple[str, str], Calibration] = {}
    costed: dict[str, CostedRun] = {}
    for sweep in sweeps:
        for spec, data in sweep.runs():
            key = (data.name, spec.algorithm)
            if key not in calibrations:
                calibrations[key] = calibrate(spec, data, device=device)
            run = PlannedRun(name_run(spec, data), spec)
            costed[run.name] = CostedRun(run, data.name, estimate(spec, data, calibrations[key]))
    return list(costed.values())


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
    return Calibration(statistics.mean(times), run.spec.batch_size or 1, score_seconds, size)


def estimate(spec: RunSpec, dataset: DomainDataset, calibration: Calibration) -> Estimate:
    """Time and disk of one run, by its steps, batch and evaluations; a step's time is taken to grow with its batch."""
    spec = resolve(spec, dataset)
    steps, every, batch_size = spec.steps or 1, spec.eval_every or 1, spec.batch_size or 1
    models = 1 if spec.averaging == "none" else 2
    evaluations = math.ceil(steps / every)
    seconds = steps * calibration.step_seconds * batch_size / calibration.batch_size
    seconds += evaluations * models * _scored(spec, dataset) * calibration.score_seconds
    files = 2 * models + models * (spec.snapshots + 1 if spec.snapshots else 0)  # best and last, and the snapshots
    return Estimate(1, seconds, files * calibration.weights_bytes)


def _scored(spec: RunSpec, dataset: DomainDataset) -> int:
    """Instances in one evaluation of one model: the sources' holdouts, and all of the test domains."""
    return sum(
        len(domain)
        if spec.evaluate_train or domain.name in spec.test_domains
        else int(len(domain) * spec.holdout_fraction)
        for domain in dataset.domains
    )


def total(estimates: Iterable[Estimate]) -> Estimate:
    """The sum."""
    runs, seconds, size = 0, 0.0, 0
    for each in estimates:
        runs, seconds, size = runs + each.runs, seconds + each.seconds, size + each.bytes
    return Estimate(runs, seconds, size)


def fitting(runs: Sequence[CostedRun], budget_seconds: float, workers: int = 1) -> list[CostedRun]:
    """The first runs, in the sweep's order, that end within the budget on so many workers."""
    free_at = [0.0] * workers
    fit = []
    for run in runs:
        first = free_at.index(min(free_at))  # the worker that is free first takes the next run
        free_at[first] += run.estimate.seconds
        if free_at[first] > budget_seconds:
            break
        fit.append(run)
    return fit


def summary(runs: Sequence[CostedRun], workers: int = 1, budget: float | None = None) -> list[str]:
    """Runs, time and disk in words, by dataset and algorithm and in all; what fits into a budget of seconds."""
    by_method: dict[tuple[str, str], list[Estimate]] = {}
    for each in runs:
        by_method.setdefault((each.dataset, each.run.spec.algorithm), []).append(each.estimate)
    lines = []
    for (dataset, algorithm), estimates in by_method.items():
        part = total(estimates)
        time_of_part = readable_duration(part.seconds / workers)
        lines.append(f"{dataset:16} {algorithm:16} {part.runs:6} runs {time_of_part:>14} {_gigabytes(part):>10}")
    whole = total(each.estimate for each in runs)
    lines.append(
        f"{whole.runs} runs, about {readable_duration(whole.seconds / workers)} on {workers} "
        f"worker{'s' if workers > 1 else ''}, {_gigabytes(whole)} of weights."
    )
    if budget is not None:
        fit = fitting(runs, budget, workers)
        trials = Counter(each.run.spec.trial_seed for each in fit)
        by_trial = "".join(f", {count} of trial {trial}" for trial, count in sorted(trials.items()))
        lines.append(f"Into {readable_duration(budget)} fit the first {len(fit)} of {whole.runs} runs{by_trial}.")
    return lines


def _gigabytes(estimate: Estimate) -> str:
    return f"{estimate.bytes / 1e9:.2f} GB"
