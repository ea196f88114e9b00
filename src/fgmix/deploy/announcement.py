"""What `fit` prints before it starts: number of runs, time, and advice."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fgmix.data import DomainDataset
from fgmix.durations import readable_duration
from fgmix.records.metrics import unbalanced
from fgmix.records.schema import RunSpec
from fgmix.records.store import RunFolder
from fgmix.training.calibrate import calibrate, estimate
from fgmix.training.devices import pick_device
from fgmix.training.resolve import resolve

BUDGET = 5.0  # seconds that the calibration may take before it starts its last step


def announce(specs: Sequence[RunSpec], dataset: DomainDataset, folder: Path, device: str, notes: Sequence[str]) -> None:
    """Print the runs that are left and the time they need, on standard error.

    Args:
        specs: the runs; the last one trains on all domains.
        dataset: their dataset.
        folder: of the runs; finished ones are not counted.
        device: as in `fit`.
        notes: printed before.
    """
    for note in (*notes, *advice(specs[-1], dataset, device)):
        print(f"note: {note}", file=sys.stderr)
    places = [(spec, RunFolder(folder / resolve(spec, dataset).name)) for spec in specs]
    if left := [spec for spec, run in places if not run.is_done]:
        begun = sum(run.checkpoint.exists() and not run.is_done for _, run in places)
        print(f"fit: {_cost(left, len(specs), dataset, device)}{_resumed(begun)}", file=sys.stderr)


def _cost(left: Sequence[RunSpec], runs: int, dataset: DomainDataset, device: str) -> str:
    """The runs that are left and the time of all of their steps, calibrated on a few steps of the last run."""
    found = calibrate(left[-1], dataset, device=device, budget=BUDGET)
    seconds = sum(estimate(spec, dataset, found).seconds for spec in left)
    count = f"{runs} run{'s' if runs > 1 else ''}" if len(left) == runs else f"{len(left)} of {runs} runs"
    steps = resolve(left[-1], dataset).steps
    return f"{count} of {steps:,} steps, about {readable_duration(seconds)} on {pick_device(device)}"


def _resumed(begun: int) -> str:
    """A note on runs that are resumed, which need less time."""
    return f"; {begun} of them resumed from a checkpoint, which takes less" if begun else ""


def advice(spec: RunSpec, dataset: DomainDataset, device: str) -> list[str]:
    """Advice: a faster way to train, or a metric for unbalanced classes."""
    found = []
    on_cpu = dataset.kind == "images" and pick_device(device).type == "cpu"
    if on_cpu and not spec.frozen and _is_trained(spec, dataset):
        found.append(
            "No GPU is used: --frozen trains only a small network on features of the backbone, which takes minutes."
        )
    counts = np.bincount(np.concatenate([domain.y for domain in dataset.domains]))
    if spec.metric == "accuracy" and unbalanced(counts):
        found.append(
            f"The classes are unbalanced (from {counts[counts > 0].min()} to {counts.max()} samples): consider "
            "--metric balanced_accuracy, and --class-weight balanced."
        )
    return found


def _is_trained(spec: RunSpec, dataset: DomainDataset) -> bool:
    """Whether the backbone has pre-trained weights, which `--frozen` needs."""
    found = resolve(spec, dataset)
    return bool(found.pretrained or found.weights)
