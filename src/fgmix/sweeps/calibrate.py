"""Estimate the time and disk space of a run from a few steps, timed on this machine."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import astuple, dataclass

import numpy as np
from torch import Tensor

from fgmix.algorithms import Algorithm
from fgmix.data import DomainDataset
from fgmix.records.protocols import PROTOCOLS
from fgmix.records.schema import RunSpec
from fgmix.seeding import seed_torch
from fgmix.training.averaging import get_predictor_tensors
from fgmix.training.devices import pick_device
from fgmix.training.evaluate import evaluation_mode
from fgmix.training.memory import keep_freed_memory
from fgmix.training.prepare import (
    PreparedRun,
    build_algorithm,
    build_source,
    locate_activations,
    prepare_data,
    split_and_standardise,
)
from fgmix.training.resolve import resolve

# Fractions of a run at which steps are timed, the middles of five parts: FGMix mixes in two of them, as in a run.
PHASES = (0.5, 0.1, 0.9, 0.7, 0.3)
AVERAGES = {"none": 0, "swa": 1, "swad": 8}  # copies of the model that an average keeps, at most
EVALUATED = 128  # samples scored to time an evaluation
SAMPLED = 32  # images of each domain whose activations are computed to time that


@dataclass(frozen=True)
class Calibration:
    """Measurements on this machine."""

    step_seconds: Mapping[float, float]  # one training step, by phase of a run
    batch_size: int  # of that step, per domain
    read_seconds: float  # preparing one sample for an evaluation, once for all models of a pass
    score_seconds: float  # one model's prediction for it
    weights_bytes: int  # one file of weights: all of the algorithm's tensors
    model_bytes: int  # featurizer and classifier, as in a snapshot and an average
    state_bytes: int  # the algorithm's state in a checkpoint, optimisers included
    activations: ActivationCost | None = None  # what a frozen network must compute before, once for all runs


@dataclass(frozen=True)
class ActivationCost:
    """Time and space to compute activations that are not in the cache."""

    name: str  # of the network
    images: int  # of all views
    seconds: float
    bytes: int


@dataclass(frozen=True)
class RunCost:
    """Time, disk space and steps of one or many runs; `spared` are steps that it shares with an earlier run."""

    runs: int = 0
    seconds: float = 0.0
    bytes: int = 0
    steps: int = 0
    spared: int = 0

    def __add__(self, other: RunCost) -> RunCost:
        return RunCost(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other))))


def calibrate(
    spec: RunSpec, dataset: DomainDataset, *, device: str = "auto", repeats: int = 2, budget: float = math.inf
) -> Calibration:
    """Time steps in five phases of a run, and the evaluation of a few samples; nothing is written.

    In each phase, `repeats` steps are timed after one for warm-up; after `budget` seconds, no further one is, but at
    least one in all.
    """
    keep_freed_memory()  # as training does
    run, activations = _prepare(spec, dataset, device)
    algorithm = build_algorithm(run).to(pick_device(device)).train()
    step_seconds = _time_steps(run, algorithm, repeats, budget)
    read_seconds, score_seconds = _time_evaluation(run, algorithm)
    state = algorithm.state_dict()
    return Calibration(
        step_seconds=step_seconds,
        batch_size=run.spec.batch_size,
        read_seconds=read_seconds,
        score_seconds=score_seconds,
        weights_bytes=sum(tensor.nbytes for tensor in state.values() if isinstance(tensor, Tensor)),
        model_bytes=_count_bytes(get_predictor_tensors(algorithm)),
        state_bytes=_count_bytes(state),
        activations=activations,
    )


def _prepare(spec: RunSpec, dataset: DomainDataset, device: str) -> tuple[PreparedRun, ActivationCost | None]:
    """Prepare a run; if it needs activations that are not there, on those of a few images, whose time is taken."""
    resolved = resolve(spec, dataset)
    if resolved.on_activations:
        cache = locate_activations(resolved, dataset, device=device)
        if missing := cache.count_missing():
            cache.sample(1)  # warm-up
            started = time.perf_counter()
            sample = cache.sample(SAMPLED)
            images = sum(map(len, sample.domains))
            seconds = (time.perf_counter() - started) / images * missing
            size = math.prod(sample.input_shape) * np.dtype(cache.precision).itemsize
            cost = ActivationCost(cache.name, missing, seconds, missing * size)
            return split_and_standardise(resolved, sample), cost
    return prepare_data(resolved, dataset, device=device, progress=False), None


def _time_steps(run: PreparedRun, algorithm: Algorithm, repeats: int, budget: float) -> dict[float, float]:
    """Return the seconds of one step in the phases of a run: the median within each."""
    device = next(algorithm.parameters()).device
    source = build_source(run)
    by_phase: dict[float, float] = {}
    begun = time.perf_counter()
    for phase in PHASES:
        if by_phase and time.perf_counter() - begun > budget:
            break
        algorithm.updates = int(phase * run.spec.steps)
        seconds: list[float] = []
        for step in range(repeats + 1):
            if seconds and time.perf_counter() - begun > budget:
                break
            started = time.perf_counter()
            batches = [(x.to(device), y.to(device)) for x, y in source.at(step)]
            seed_torch("calibration", step)
            float(algorithm.step(batches)["loss"])  # fetched, to wait for the device
            seconds.append(time.perf_counter() - started)
        by_phase[phase] = statistics.median(seconds[1:] or seconds)
    return by_phase


def _time_evaluation(run: PreparedRun, algorithm: Algorithm) -> tuple[float, float]:
    """Return the seconds to read one sample, and to score it."""
    domain, split = run.dataset.domains[0], run.splits[run.dataset.domain_names[0]]
    rows = split.train[:EVALUATED]
    started = time.perf_counter()
    x = domain.inputs.clean(rows)
    read = time.perf_counter() - started
    with evaluation_mode(algorithm):
        for _ in range(2):  # the first is a warm-up
            started = time.perf_counter()
            algorithm.predict(x.to(next(algorithm.parameters()).device)).sum().item()  # fetched, as above
    scored = time.perf_counter() - started
    return read / len(rows), scored / len(rows)


def _count_bytes(state: object) -> int:
    """Add up the sizes of all tensors in a nested state."""
    if isinstance(state, Tensor):
        return int(state.nbytes)
    parts = state.values() if isinstance(state, Mapping) else state if isinstance(state, list | tuple) else ()
    return sum(_count_bytes(part) for part in parts)


def estimate_cost(spec: RunSpec, dataset: DomainDataset, calibration: Calibration, start: int = 0) -> RunCost:
    """Estimate time and disk space of one run, for which another run has trained the first `start` steps.

    The time of a step is assumed to be proportional to the batch size.
    """
    run = resolve(spec, dataset)
    models = 1 if run.averaging == "none" else 2
    evaluations = [step for step in PROTOCOLS[run.protocol].evaluations(run.eval_every, run.steps) if step > start]
    timed = calibration.step_seconds
    own = [seconds for phase, seconds in timed.items() if phase * run.steps >= start]  # not of steps that are shared
    step_seconds = statistics.mean(own or timed.values())
    seconds = (run.steps - start) * step_seconds * run.batch_size / calibration.batch_size
    passes = 2 if run.averaging == "swad" else 1  # SWAD's average depends on the raw model's losses
    per_sample = passes * calibration.read_seconds + models * calibration.score_seconds
    whole = dataset.domain_names if run.evaluate_train else run.test_domains  # scored in whole; of others the holdout
    sizes = {domain.name: len(domain) for domain in dataset.domains}
    evaluated = sum(size if name in whole else int(size * run.holdout_fraction) for name, size in sizes.items())
    seconds += len(evaluations) * evaluated * per_sample
    snapshots = run.snapshots + 1 if run.snapshots else 0
    kept = {"all": 2 * calibration.weights_bytes, "best": calibration.model_bytes, "none": 0}[run.keep]  # best and last
    each = kept + snapshots * calibration.model_bytes
    return RunCost(1, seconds, models * each, run.steps - start, start)


def count_checkpoint_bytes(spec: RunSpec, calibration: Calibration) -> int:
    """Compute the maximum disk space of a run's checkpoints, which are removed at its end."""
    size = calibration.state_bytes + AVERAGES[spec.averaging] * calibration.model_bytes
    return 2 * size  # the newest, and the one before it
