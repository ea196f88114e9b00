"""Estimate the cost of a sweep from a few steps of each algorithm on each dataset, timed on this machine."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fgmix.data import DomainDataset
from fgmix.data._registry import cache_dir
from fgmix.durations import readable_duration
from fgmix.errors import UserError
from fgmix.records.protocols import PROTOCOLS
from fgmix.records.schema import RunSpec
from fgmix.seeding import seed_torch
from fgmix.sweeps.sweep import PlannedRun, Sweep
from fgmix.training.averaging import predictor_tensors
from fgmix.training.devices import pick_device, torch_threads
from fgmix.training.evaluation import evaluating
from fgmix.training.prepare import batch_source, build_algorithm, prepare
from fgmix.training.resolve import notes_of, resolve
from fgmix.training.trunk import shared_trunks, trunk_of

PHASES = (0.5, 0.1, 0.9)  # fractions of a run: methods that change over a run (warm-up, annealing) are timed at each
AVERAGES = {"none": 0, "swa": 1, "swad": 8}  # copies of the model that an average keeps, at most
EVALUATED = 128  # samples scored to time an evaluation


@dataclass(frozen=True)
class Calibration:
    """Measurements on this machine.

    Args:
        step_seconds: one training step, mean over the phases of a run.
        batch_size: of that step, per domain.
        read_seconds: preparing one sample for an evaluation, once for all models of a pass.
        score_seconds: one model's prediction for it.
        weights_bytes: one file of weights: all of the algorithm's tensors.
        model_bytes: featurizer and classifier, as in a snapshot and an average.
        state_bytes: the algorithm's state in a checkpoint, optimisers included.
    """

    step_seconds: float
    batch_size: int
    read_seconds: float
    score_seconds: float
    weights_bytes: int
    model_bytes: int
    state_bytes: int


@dataclass(frozen=True)
class Estimate:
    """Time, disk space and steps of one or many runs; `spared` are steps that it shares with an earlier run."""

    runs: int
    seconds: float
    bytes: int
    steps: int = 0
    spared: int = 0


@dataclass(frozen=True)
class CostedRun:
    """A run and its estimated cost.

    Args:
        run: the run.
        dataset: name of its dataset.
        estimate: time, and the disk space of its results.
        checkpoint_bytes: further disk space during the run.
        decoded: whether its dataset has a cache of decoded images.
    """

    run: PlannedRun
    dataset: str
    estimate: Estimate
    checkpoint_bytes: int
    decoded: bool = False


@dataclass(frozen=True)
class Costs:
    """The cost of sweeps: of each run, and why methods cannot run on a dataset, by dataset and algorithm."""

    runs: list[CostedRun]
    impossible: Mapping[tuple[str, str], str]


def cost(sweeps: Iterable[Sweep], *, device: str = "auto", workers: int = 1) -> Costs:
    """Every run of the sweeps with its cost, by a calibration with the first run of each algorithm on each dataset.

    Args:
        sweeps: what to run.
        device: see `fit`.
        workers: number of processes that share torch's threads: the calibration uses the threads of one.
    """
    pick_device(device)  # an unknown name is the user's mistake, not a method that cannot run
    wanted = {(run := resolve(spec, data)).name: (run, spec, data) for sweep in sweeps for spec, data in sweep.runs()}
    trunks = shared_trunks(run for run, _, _ in wanted.values())
    trained: set[tuple[str, int]] = set()  # trunks that an earlier run trains
    calibrations: dict[tuple[str, str], Calibration | UserError] = {}
    costed: list[CostedRun] = []
    for name, (run, spec, data) in wanted.items():
        key = (data.name, spec.algorithm)
        if key not in calibrations:
            calibrations[key] = _try_to_calibrate(spec, data, device, workers)
        if isinstance(found := calibrations[key], UserError):
            continue
        trunk = (trunk_of(run).name, trunks[name])
        start = trunks[name] if trunk in trained else 0
        trained.add(trunk)
        planned = PlannedRun(name, spec, trunks[name], tuple(notes_of(spec, run)))
        disk = checkpoint_bytes(run, found)
        costed.append(CostedRun(planned, data.name, estimate(run, data, found, start), disk, data.kind == "images"))
    impossible = {key: str(found) for key, found in calibrations.items() if isinstance(found, UserError)}
    return Costs(costed, impossible)


def _try_to_calibrate(spec: RunSpec, dataset: DomainDataset, device: str, workers: int) -> Calibration | UserError:
    """Calibrate with a worker's share of the threads; returns the error if the method cannot run on the dataset."""
    try:
        with torch_threads(max(1, torch.get_num_threads() // workers)):
            return calibrate(spec, dataset, device=device)
    except UserError as error:
        return error


def calibrate(
    spec: RunSpec, dataset: DomainDataset, *, device: str = "auto", repeats: int = 2, budget: float = math.inf
) -> Calibration:
    """Time steps in three phases of a run, and the evaluation of a few samples; nothing is written.

    Args:
        spec: the run.
        dataset: its dataset.
        device: see `fit`.
        repeats: timed steps in each phase, after one for warm-up.
        budget: seconds after which no further step is timed; at least one is.
    """
    run = prepare(spec, dataset, device=device, progress=False)
    algorithm = build_algorithm(run).to(pick_device(device)).train()
    where = next(algorithm.parameters()).device
    source = batch_source(run)
    times: list[float] = []
    begun = time.perf_counter()
    for phase in PHASES:
        if times and time.perf_counter() - begun > budget:
            break
        algorithm.updates = int(phase * run.spec.steps)
        taken: list[float] = []
        for step in range(repeats + 1):
            if taken and time.perf_counter() - begun > budget:
                break
            started = time.perf_counter()
            batches = [(x.to(where), y.to(where)) for x, y in source.at(step)]
            seed_torch("calibration", step)
            float(algorithm.step(batches)["loss"])  # fetched, to wait for the device
            taken.append(time.perf_counter() - started)
        times.append(statistics.median(taken[1:] or taken))
    domain, split = run.dataset.domains[0], run.splits[run.dataset.domain_names[0]]
    some = split.train[:EVALUATED]
    started = time.perf_counter()
    x = domain.inputs.clean(some)
    read = time.perf_counter() - started
    with evaluating(algorithm):
        algorithm.predict(x.to(where)).sum().item()  # fetched, as above
    scored = time.perf_counter() - started - read
    state = algorithm.state_dict()
    return Calibration(
        step_seconds=statistics.mean(times),
        batch_size=run.spec.batch_size,
        read_seconds=read / len(some),
        score_seconds=scored / len(some),
        weights_bytes=sum(tensor.nbytes for tensor in state.values() if isinstance(tensor, Tensor)),
        model_bytes=_bytes_of(predictor_tensors(algorithm)),
        state_bytes=_bytes_of(state),
    )


def _bytes_of(state: object) -> int:
    """Size of all tensors in a nested state."""
    if isinstance(state, Tensor):
        return int(state.nbytes)
    parts = state.values() if isinstance(state, Mapping) else state if isinstance(state, list | tuple) else ()
    return sum(_bytes_of(part) for part in parts)


def estimate(spec: RunSpec, dataset: DomainDataset, calibration: Calibration, start: int = 0) -> Estimate:
    """Time and disk space of one run; the time of a step is assumed to be proportional to the batch size.

    Args:
        spec: the run.
        dataset: its dataset.
        calibration: the measurements.
        start: how many first steps another run has trained for it.
    """
    run = resolve(spec, dataset)
    models = 1 if run.averaging == "none" else 2
    evaluations = [step for step in PROTOCOLS[run.protocol].evaluations(run.eval_every, run.steps) if step > start]
    seconds = (run.steps - start) * calibration.step_seconds * run.batch_size / calibration.batch_size
    passes = 2 if run.averaging == "swad" else 1  # SWAD's average depends on the raw model's losses
    per_sample = passes * calibration.read_seconds + models * calibration.score_seconds
    seconds += len(evaluations) * _scored(run, dataset) * per_sample
    snapshots = run.snapshots + 1 if run.snapshots else 0
    kept = {"all": 2 * calibration.weights_bytes, "best": calibration.model_bytes, "none": 0}[run.keep]  # best and last
    each = kept + snapshots * calibration.model_bytes
    return Estimate(1, seconds, models * each, run.steps - start, start)


def checkpoint_bytes(spec: RunSpec, calibration: Calibration) -> int:
    """Disk space of a run's checkpoints at most, which are removed at its end."""
    size = calibration.state_bytes + AVERAGES[spec.averaging] * calibration.model_bytes
    return 2 * size  # the newest, and the one before it


def _scored(spec: RunSpec, dataset: DomainDataset) -> int:
    """Samples in one evaluation: the holdout parts of the source domains (or all), and all of the test domains."""
    return sum(
        len(domain)
        if spec.evaluate_train or domain.name in spec.test_domains
        else int(len(domain) * spec.holdout_fraction)
        for domain in dataset.domains
    )


def total(estimates: Iterable[Estimate]) -> Estimate:
    """The sum."""
    runs, seconds, size, steps, spared = 0, 0.0, 0, 0, 0
    for each in estimates:
        runs, seconds, size = runs + each.runs, seconds + each.seconds, size + each.bytes
        steps, spared = steps + each.steps, spared + each.spared
    return Estimate(runs, seconds, size, steps, spared)


def fitting(runs: Sequence[CostedRun], budget_seconds: float, workers: int = 1) -> list[CostedRun]:
    """The first runs, in the sweep's order, that finish within the budget on `workers` workers."""
    free_at = [0.0] * workers
    fit = []
    for run in runs:
        first = free_at.index(min(free_at))  # the worker that is free first gets the next run
        free_at[first] += run.estimate.seconds
        if free_at[first] > budget_seconds:
            break
        fit.append(run)
    return fit


def summary(
    runs: Sequence[CostedRun],
    workers: int = 1,
    budget: float | None = None,
    impossible: Mapping[tuple[str, str], str] | None = None,
) -> list[str]:
    """Lines with the number of runs, time and disk space, by dataset and method and in total.

    Args:
        runs: what to run.
        workers: number of processes.
        budget: seconds, to list how many runs finish within them; None for no such line.
        impossible: why methods cannot run, by dataset and algorithm.
    """
    by_method: dict[tuple[str, str], list[Estimate]] = {}
    for each in runs:
        by_method.setdefault((each.dataset, each.run.spec.method), []).append(each.estimate)
    lines = []
    for (dataset, algorithm), estimates in by_method.items():
        part = total(estimates)
        time_of_part = readable_duration(part.seconds / workers)
        size = _gigabytes(part.bytes)
        lines.append(f"{dataset:16} {algorithm:16} {part.runs:6} runs {time_of_part:>14} {size:>10}")
    lines += [
        f"{dataset:16} {algorithm:16} cannot run: {reason}"
        for (dataset, algorithm), reason in (impossible or {}).items()
    ]
    whole = total(each.estimate for each in runs)
    checkpoints = sum(sorted((each.checkpoint_bytes for each in runs), reverse=True)[:workers])
    lines.append(
        f"{whole.runs} runs, about {readable_duration(whole.seconds / workers)} on {workers} "
        f"worker{'s' if workers > 1 else ''}, {_gigabytes(whole.bytes)} of weights, and up to "
        f"{_gigabytes(checkpoints)} of checkpoints while runs are in progress."
    )
    if whole.spared:
        every = whole.steps + whole.spared
        share = whole.steps / every
        lines.append(f"Shared first steps: {whole.steps:,} steps are trained instead of {every:,} ({share:.0%}).")
    if decoded := dict.fromkeys(each.dataset for each in runs if each.decoded):
        lines.append(f"Not included: the cache of decoded images of {', '.join(decoded)} in {cache_dir()}.")
    if budget is not None:
        fit = fitting(runs, budget, workers)
        trials = Counter(each.run.spec.trial_seed for each in fit)
        by_trial = "".join(f", {count} of trial {trial}" for trial, count in sorted(trials.items()))
        lines.append(f"The first {len(fit)} of {whole.runs} runs finish within {readable_duration(budget)}{by_trial}.")
    return lines


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
