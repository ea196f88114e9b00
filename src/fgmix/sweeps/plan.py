"""Estimate the cost of a sweep from a few steps of each algorithm on each dataset, timed on this machine."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from fgmix.errors import UserError
from fgmix.progress import format_duration
from fgmix.records.files import cache_dir
from fgmix.records.rows import spec_row
from fgmix.sweeps.calibrate import (
    ActivationCost,
    Calibration,
    RunCost,
    calibrate,
    count_checkpoint_bytes,
    estimate_cost,
)
from fgmix.sweeps.design import PlannedRun, Sweep
from fgmix.training.devices import pick_device, torch_threads
from fgmix.training.resolve import list_notes, resolve
from fgmix.training.trunk import describe_trunk, find_shared_trunks


@dataclass(frozen=True)
class CostedRun:
    """A run and its estimated cost."""

    run: PlannedRun  # its name and spec
    dataset: str  # its name
    estimate: RunCost  # time, and the disk space of its results
    checkpoint_bytes: int  # further disk space during the run
    caches_images: bool = False  # whether its dataset has a cache of decoded images
    activations: ActivationCost | None = None  # of a frozen network, computed once for all runs that share them


@dataclass(frozen=True)
class SweepCosts:
    """What sweeps cost."""

    runs: list[CostedRun]  # all that can run
    impossible: Mapping[tuple[str, str], str]  # why methods cannot run on a dataset, by dataset and the row's key


def estimate_costs(sweeps: Iterable[Sweep], *, device: str = "auto", workers: int = 1) -> SweepCosts:
    """Estimate the cost of every run, by a calibration with the first run of each arm of an algorithm on each dataset.

    `workers` processes share torch's threads: the calibration uses the threads of one.
    """
    pick_device(device)  # an unknown name is the user's mistake, not an algorithm that cannot run
    planned = {
        (run := resolve(spec, data)).name: (run, spec, data)
        for sweep in sweeps
        for spec, data in sweep.generate_specs()
    }
    trunks = find_shared_trunks(run for run, _, _ in planned.values())
    trained: set[tuple[str, int]] = set()  # trunks that an earlier run trains
    calibrations: dict[tuple[str, str], Calibration | UserError] = {}
    costed: list[CostedRun] = []
    for name, (run, spec, data) in planned.items():
        key = (data.name, spec_row(spec).key)
        if key not in calibrations:
            try:
                with torch_threads(max(1, torch.get_num_threads() // workers)):
                    calibrations[key] = calibrate(spec, data, device=device)
            except UserError as error:  # the algorithm cannot run on the dataset
                calibrations[key] = error
        if isinstance(calibration := calibrations[key], UserError):
            continue
        trunk = (describe_trunk(run).name, trunks[name])
        start = trunks[name] if trunk in trained else 0
        trained.add(trunk)
        each = PlannedRun(name, spec, trunks[name], tuple(list_notes(spec, run)))
        cost = estimate_cost(run, data, calibration, start)
        checkpoints = count_checkpoint_bytes(run, calibration)
        costed.append(CostedRun(each, data.name, cost, checkpoints, data.kind == "images", calibration.activations))
    impossible = {key: str(error) for key, error in calibrations.items() if isinstance(error, UserError)}
    return SweepCosts(costed, impossible)


def select_fitting(runs: Sequence[CostedRun], budget_seconds: float, workers: int = 1) -> list[CostedRun]:
    """Select the first runs, in the sweep's order, that finish within the budget on `workers` workers."""
    free_at = [0.0] * workers
    fitting = []
    for run in runs:
        first = free_at.index(min(free_at))  # the worker that is free first gets the next run
        free_at[first] += run.estimate.seconds
        if free_at[first] > budget_seconds:
            break
        fitting.append(run)
    return fitting


def summarise(
    runs: Sequence[CostedRun],
    workers: int = 1,
    budget: float | None = None,
    impossible: Mapping[tuple[str, str], str] | None = None,
) -> list[str]:
    """Write lines with the number of runs, time and disk space, by dataset and algorithm and in total.

    With a budget in seconds, a line says how many runs finish within it. `impossible` is as in `SweepCosts`.
    """
    by_row: dict[tuple[str, str], RunCost] = defaultdict(RunCost)
    for each in runs:
        by_row[each.dataset, spec_row(each.run.spec).key] += each.estimate
    lines = [f"{'dataset':16} {'method':16} {'':6}      {'time':>14} {'disk':>10}"] if by_row else []
    for (dataset, row), part in by_row.items():
        duration = format_duration(part.seconds / workers)
        lines.append(f"{dataset:16} {row:16} {part.runs:6} runs {duration:>14} {_gigabytes(part.bytes):>10}")
    lines += [f"{dataset:16} {row:16} cannot run: {reason}" for (dataset, row), reason in (impossible or {}).items()]
    whole = sum(by_row.values(), RunCost())
    checkpoints = sum(sorted((each.checkpoint_bytes for each in runs), reverse=True)[:workers])
    lines.append(
        f"{whole.runs} runs, about {format_duration(whole.seconds / workers)} on {workers} "
        f"worker{'s' if workers > 1 else ''}, {_gigabytes(whole.bytes)} of weights, and up to "
        f"{_gigabytes(checkpoints)} of checkpoints while runs are in progress."
    )
    if whole.spared:
        every = whole.steps + whole.spared
        share = whole.steps / every
        saved = f"{whole.steps:,} steps are trained instead of {every:,} ({share:.0%})"
        lines.append(f"Shared first steps: {saved}; their time counts for one method.")
    computed = {(each.dataset, each.activations.name): each.activations for each in runs if each.activations}
    for (dataset, name), cost in computed.items():
        lines.append(
            f"Before the first run: activations of {dataset} in {name}, {cost.images:,} images, about "
            f"{format_duration(cost.seconds / workers)}, {_gigabytes(cost.bytes)} in {cache_dir()}."
        )
    if cached := dict.fromkeys(each.dataset for each in runs if each.caches_images):
        lines.append(f"Not included: the cache of decoded images of {', '.join(cached)} in {cache_dir()}.")
    if budget is not None:
        fitting = select_fitting(runs, budget, workers)
        trials = Counter(each.run.spec.trial_seed for each in fitting)
        by_trial = "".join(f", {count} of trial {trial}" for trial, count in sorted(trials.items()))
        lines.append(
            f"The first {len(fitting)} of {whole.runs} runs finish within {format_duration(budget)}{by_trial}."
        )
    return lines


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
