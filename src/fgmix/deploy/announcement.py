"""What `fit` tells before it starts: how many runs, how long, and what would be faster."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fgmix.data import DomainDataset
from fgmix.metrics import unbalanced
from fgmix.runs.devices import pick_device
from fgmix.runs.folder import RunFolder
from fgmix.runs.resolve import resolve
from fgmix.runs.spec import RunSpec
from fgmix.sweeps.durations import readable_duration
from fgmix.sweeps.plan import calibrate, estimate

BUDGET = 5.0  # seconds that the calibration may take before it starts its last step


def announce(specs: Sequence[RunSpec], dataset: DomainDataset, folder: Path, device: str, notes: Sequence[str]) -> None:
    """Print what is about to be done, and how long it will take, on standard error.

    Args:
        specs: the runs; the last one trains on all domains.
        dataset: their dataset.
        folder: of the runs; those that are finished cost nothing.
        device: as in `fit`.
        notes: what else a user should know.
    """
    for note in (*notes, *advice(specs[-1], dataset, device)):
        print(f"note: {note}", file=sys.stderr)
    if left := [spec for spec in specs if not RunFolder(folder / resolve(spec, dataset).name).is_done]:
        print(f"fit: {_cost(left, len(specs), dataset, device)}", file=sys.stderr)


def _cost(left: Sequence[RunSpec], runs: int, dataset: DomainDataset, device: str) -> str:
    """The runs that are left and their time, from a few steps of the last one."""
    found = calibrate(left[-1], dataset, device=device, budget=BUDGET)
    seconds = sum(estimate(spec, dataset, found).seconds for spec in left)
    count = f"{runs} runs" if len(left) == runs else f"{len(left)} of {runs} runs"
    steps = resolve(left[-1], dataset).steps
    return f"{count} of {steps:,} steps, about {readable_duration(seconds)} on {pick_device(device)}"


def advice(spec: RunSpec, dataset: DomainDataset, device: str) -> list[str]:
    """What would be faster here, and which metric tells more."""
    found = []
    if not spec.frozen and dataset.kind == "images" and pick_device(device).type == "cpu":
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
