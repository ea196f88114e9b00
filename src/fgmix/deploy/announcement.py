"""What `fit` prints before it starts: number of runs, time, and advice."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fgmix.data import DomainDataset
from fgmix.progress import format_duration
from fgmix.records.metrics import is_unbalanced
from fgmix.records.schema import ResolvedSpec
from fgmix.records.store import RunFolder
from fgmix.training.calibrate import calibrate, estimate
from fgmix.training.devices import pick_device

BUDGET = 5.0  # seconds that the calibration may take before it starts its last step


def announce(
    specs: Sequence[ResolvedSpec], dataset: DomainDataset, folder: Path, device: str, notes: Sequence[str]
) -> None:
    """Print the runs that are left and the time they need, on standard error.

    Args:
        specs: the runs; the last one trains on all domains.
        dataset: their dataset.
        folder: of the runs; finished ones are not counted.
        device: as in `fit`.
        notes: printed before.
    """
    for note in (*notes, *advise(specs[-1], dataset, device)):
        print(f"note: {note}", file=sys.stderr)
    places = [(spec, RunFolder(folder / spec.name)) for spec in specs]
    if left := [spec for spec, run in places if not run.is_done]:
        begun = sum(run.checkpoint.exists() and not run.is_done for _, run in places)
        resumed = f"; {begun} of them resumed from a checkpoint, which takes less" if begun else ""
        print(f"fit: {_describe_cost(left, len(specs), dataset, device)}{resumed}", file=sys.stderr)


def _describe_cost(left: Sequence[ResolvedSpec], runs: int, dataset: DomainDataset, device: str) -> str:
    """Name the runs that are left and the time of all of their steps, calibrated on a few steps of the last run."""
    calibration = calibrate(left[-1], dataset, device=device, budget=BUDGET)
    seconds = sum(estimate(spec, dataset, calibration).seconds for spec in left)
    count = f"{runs} run{'s' if runs > 1 else ''}" if len(left) == runs else f"{len(left)} of {runs} runs"
    return f"{count} of {left[-1].steps:,} steps, about {format_duration(seconds)} on {pick_device(device)}"


def advise(spec: ResolvedSpec, dataset: DomainDataset, device: str) -> list[str]:
    """Suggest a faster way to train, or a metric for unbalanced classes."""
    advice = []
    on_cpu = dataset.kind == "images" and pick_device(device).type == "cpu"
    if on_cpu and not spec.frozen and (spec.pretrained or spec.weights):  # which `--frozen` needs
        advice.append(
            "No GPU is used: --frozen trains only a small network on features of the backbone, which takes minutes."
        )
    counts = np.bincount(np.concatenate([domain.y for domain in dataset.domains]))
    if spec.metric == "accuracy" and is_unbalanced(counts):
        advice.append(
            f"The classes are unbalanced (from {counts[counts > 0].min()} to {counts.max()} samples): consider "
            "--metric balanced_accuracy, and --class-weight balanced."
        )
    return advice
