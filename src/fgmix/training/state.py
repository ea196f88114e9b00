"""The state of a run: checkpoints, and resuming from them with the same result as without an interruption.

A checkpoint has everything that the next step depends on, in one file that is written atomically.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fgmix.algorithms import Algorithm
from fgmix.errors import UserError
from fgmix.records.digests import Damaged, damaged
from fgmix.records.evaluations import Evaluation, Model
from fgmix.records.files import write_bytes
from fgmix.records.schema import ResolvedSpec, keeps
from fgmix.records.store import RunFolder
from fgmix.training.averaging import WeightAverage
from fgmix.training.weights import check_weights, pack, unpack


@dataclass
class TrainingState:
    """State of a run in addition to its weights.

    Args:
        step: steps done.
        metrics_length: length of metrics.jsonl at that step, in bytes.
        best: by model, the highest validation accuracy (or other metric of the run) so far.
        sums: sums of the algorithm's metrics since the last evaluation.
        counted: how many steps are in the sums.
        unseen: by model and test domain, the metrics of the weights that validation selects so far.
    """

    step: int = 0
    metrics_length: int = 0
    best: dict[Model, float] = field(default_factory=dict)
    sums: dict[str, Tensor] = field(default_factory=dict)
    counted: int = 0
    unseen: dict[Model, dict[str, dict[str, Any]]] = field(default_factory=dict)


def resume(
    folder: RunFolder, spec: ResolvedSpec, algorithm: Algorithm, average: WeightAverage | None
) -> tuple[TrainingState, list[Evaluation]]:
    """Restore the newest checkpoint that is whole, with everything it builds on; without one, start from the beginning.

    Args:
        folder: the run's; evaluations newer than the checkpoint are removed from it.
        spec: the run's.
        algorithm: the run's, changed in place.
        average: the run's weight average, if it has one; changed in place.

    Returns:
        The state, and the evaluations up to it.
    """
    for path in folder.checkpoints:
        if not path.exists():
            continue
        try:
            checkpoint = read_checkpoint(path, next(algorithm.parameters()).device)
            progress = checkpoint["progress"]
            evaluations = folder.evaluations(progress["metrics_length"])
            for model in progress["best"]:
                if keeps(spec, "best", model):
                    check_weights(folder.weights("best", model))
            if progress["step"] > spec.steps:
                raise damaged(str(path))
        except Damaged as error:
            print(f"note: {error} The run resumes from what is whole.", file=sys.stderr)
            continue
        state = restore(checkpoint, path, algorithm, average)
        folder.cut_metrics(state.metrics_length)
        return state, list(evaluations)
    folder.start_over()
    return TrainingState(), []


def save_checkpoint(
    paths: tuple[Path, Path], algorithm: Algorithm, average: WeightAverage | None, state: TrainingState
) -> None:
    """Write the checkpoint at the first path; the one before it moves to the second.

    If the process is killed, one of the two is always complete.
    """
    checkpoint: dict[str, Any] = {
        "algorithm": algorithm.state_dict(),
        "average": average.state_dict() if average else None,
        "progress": vars(state),
    }
    newest, before = paths
    data = pack(checkpoint)
    if newest.exists():
        newest.replace(before)
    write_bytes(newest, data)


def read_checkpoint(path: Path, device: torch.device | str) -> dict[str, Any]:
    """Read the content of a checkpoint, which is only tensors and plain values; a damaged one raises an error."""
    checkpoint = unpack(path, device)
    if checkpoint.keys() != {"algorithm", "average", "progress"} or not _is_state(checkpoint["progress"]):
        raise damaged(str(path))
    return checkpoint


def _is_state(values: object) -> bool:
    if not isinstance(values, dict) or values.keys() != {each.name for each in fields(TrainingState)}:
        return False
    counts = (values["step"], values["metrics_length"])
    return all(type(count) is int and count >= 0 for count in counts) and isinstance(values["best"], dict)


def restore(
    checkpoint: dict[str, Any], path: Path, algorithm: Algorithm, average: WeightAverage | None
) -> TrainingState:
    """Load what `read_checkpoint` returned into the algorithm and the average; `path` is for the error."""
    try:
        algorithm.load_state_dict(checkpoint["algorithm"])
        if average:
            average.load_state_dict(checkpoint["average"])
        return TrainingState(**checkpoint["progress"])
    except (RuntimeError, KeyError, TypeError) as error:
        raise UserError(
            f"Expected this run's checkpoint at {path}. Found one of another run ({type(error).__name__}). Delete the "
            "file to start the run again."
        ) from error
