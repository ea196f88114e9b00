"""Files of a run in training: checkpoints, from which it resumes with the same result, and the weights that it keeps.

A checkpoint has everything that the next step depends on, in one file that is written atomically. Weights are kept at
the best step, after the last, and as snapshots on the way.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Container
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from fgmix.algorithms import Algorithm
from fgmix.errors import UserError, to_user_error
from fgmix.records.digests import Damaged, check_zip, damage_error
from fgmix.records.evaluations import Evaluation, Model, Share
from fgmix.records.files import Draft, open_regular
from fgmix.records.schema import Count, ResolvedSpec, Unseen, keeps
from fgmix.records.store import RunFolder
from fgmix.terminal import print_notes
from fgmix.training.averaging import WeightAverage

MEASURED_EVERY = 10  # steps; their metrics are averaged between evaluations
MODEL = ("featurizer.", "classifier.")  # prefixes of the tensors that a prediction depends on


@dataclass
class TrainingState:
    """State of a run in addition to its weights."""

    step: int = 0  # steps done
    metrics_length: int = 0  # of metrics.jsonl at that step, in bytes
    best: dict[Model, float] = field(default_factory=dict)  # highest validation accuracy (or other metric) so far
    sums: dict[str, Tensor] = field(default_factory=dict)  # of the algorithm's metrics since the last evaluation
    counted: dict[str, int] = field(default_factory=dict)  # steps in the sums, by metric
    # By model and test domain, the metrics of the weights that validation selects so far.
    unseen: dict[Model, dict[str, dict[str, Any]]] = field(default_factory=dict)

    def add(self, metrics: dict[str, Tensor]) -> None:
        """Add the metrics of a step to the sums."""
        for name, value in metrics.items():
            self.sums[name] = self.sums.get(name, 0) + value.float()
            self.counted[name] = self.counted.get(name, 0) + 1

    def average_metrics(self) -> dict[str, float]:
        """Return the mean of each metric over the steps that have it, since the last evaluation."""
        return {name: float(value) / self.counted[name] for name, value in self.sums.items()}


def is_measured(step: int, evaluation_steps: Container[int]) -> bool:
    """Tell whether a step, counted from 1, computes all metrics of its method, or may leave out costly ones."""
    return step % MEASURED_EVERY == 0 or step in evaluation_steps


class _PlainState(msgspec.Struct, forbid_unknown_fields=True):
    """What a checkpoint stores of a `TrainingState`, but for the tensors."""

    step: Count
    metrics_length: Count
    best: dict[Model, Share]
    counted: dict[str, Count]
    unseen: Unseen


def resume(
    folder: RunFolder, spec: ResolvedSpec, algorithm: Algorithm, average: WeightAverage | None
) -> tuple[TrainingState, list[Evaluation]]:
    """Restore the newest checkpoint that is whole, with everything it builds on; without one, start from the beginning.

    Algorithm and average are changed in place, and evaluations newer than the checkpoint are removed from the folder.
    Returns the state and the evaluations up to it.
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
                raise damage_error(str(path))
            for step in list_snapshot_steps(spec, progress["step"]):
                for model in list_models(spec):
                    check_weights(folder.snapshot(step, model))
        except Damaged as error:
            print_notes(f"{error} The run resumes from what is whole.")
            continue
        try:
            algorithm.load_state_dict(checkpoint["algorithm"])
            if average:
                average.load_state_dict(checkpoint["average"])
            state = TrainingState(**progress)
        except UserError:  # of adapters on another backbone
            raise
        except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"Expected this run's checkpoint at {path}. Found one of another run ({type(error).__name__}). Delete "
                "the file to start the run again."
            ) from error
        folder.cut_metrics(state.metrics_length)
        return state, list(evaluations)
    folder.start_over()
    return TrainingState(), []


def save_checkpoint(
    paths: tuple[Path, Path], algorithm: Algorithm, average: WeightAverage | None, state: TrainingState
) -> Callable[[], None]:
    """Write a checkpoint; what is returned waits for the disk and moves it to the first path, beside the next steps.

    The one before it moves to the second path. If the process is killed, one of the two is always complete.
    """
    averaged = average.state_dict() if average else None
    content = {"algorithm": algorithm.state_dict(), "average": averaged, "progress": vars(state)}
    newest, before = paths
    if newest.exists():
        newest.replace(before)
    return Draft(newest, partial(torch.save, content), seal=True).put


def read_checkpoint(path: Path, device: torch.device | str) -> dict[str, Any]:
    """Read the content of a checkpoint, which is only tensors and plain values; a damaged one raises an error."""
    checkpoint = read_weights(path, device)
    state = checkpoint.get("progress")
    if checkpoint.keys() != {"algorithm", "average", "progress"} or not isinstance(state, dict):
        raise damage_error(str(path))
    sums = state.pop("sums", None)
    if not isinstance(sums, dict) or not all(isinstance(value, Tensor) and value.ndim == 0 for value in sums.values()):
        raise damage_error(str(path))
    try:
        msgspec.convert(state, _PlainState)
    except msgspec.ValidationError as error:
        raise damage_error(str(path)) from error
    state["sums"] = sums
    return checkpoint


def list_models(spec: ResolvedSpec) -> tuple[Model, ...]:
    """List the models of a run: the raw one, and the average if there is one."""
    return ("raw",) if spec.averaging == "none" else ("raw", spec.averaging)


def list_snapshot_steps(spec: ResolvedSpec, last: int) -> list[int]:
    """List the steps up to `last` of which a run keeps snapshots: evenly spaced, for paths on loss surfaces."""
    steps = {round(i * spec.steps / spec.snapshots) for i in range(spec.snapshots + 1) if spec.snapshots}
    return sorted(step for step in steps if step <= last)


def save_weights(
    path: Path, algorithm: Algorithm, average: WeightAverage | None = None, *, model_only: bool = False
) -> None:
    """Write all tensors of the algorithm (the model, and a policy if it has one) atomically, without optimisers.

    With an average, its weights are written in place of the algorithm's. With `model_only`, only featurizer and
    classifier are written: a policy can be many times as large.
    """
    with average.applied_to(algorithm) if average else nullcontext():
        tensors = {
            name: value
            for name, value in algorithm.state_dict().items()
            if isinstance(value, Tensor) and (not model_only or name.startswith(MODEL))
        }
        Draft(path, partial(torch.save, tensors), seal=True).put()


def check_weights(path: Path) -> None:
    """Raise an error if a file of weights is damaged or missing."""
    if not path.exists():
        raise Damaged(f"Expected the file that was written at {path}. Found none.")
    with open_regular(path) as file:
        check_zip(file, str(path))


def load_weights(path: Path, algorithm: Algorithm, *, model_only: bool = False) -> None:
    """Load what `save_weights` wrote; with `model_only`, the file may contain featurizer and classifier only."""
    tensors = read_weights(path, next(algorithm.parameters()).device)
    missing, unexpected = algorithm.load_state_dict(tensors, strict=False)
    needed = [name for name in missing if not name.endswith("_extra_state")]
    if unexpected or [name for name in needed if not model_only or name.startswith(MODEL)]:
        raise UserError(f"Expected weights of this algorithm at {path}. Found others. Check the run's folder.")


def write_tensors(path: Path, content: dict[str, Any]) -> None:
    """Write tensors and plain values to a torch file with a digest, atomically."""
    Draft(path, partial(torch.save, content), seal=True).put()


def read_weights(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a file of `write_tensors`, with only tensors and plain values; a damaged one raises an error."""
    with open_regular(path) as file:
        check_zip(file, str(path))
        try:
            state = torch.load(file, map_location=device, weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, LookupError, TypeError, ValueError, EOFError) as error:
            if to_user_error(error):  # a lost device, too little memory
                raise
            raise damage_error(str(path)) from error  # the digest is correct, but the content is not plain tensors
    if not isinstance(state, dict):
        raise damage_error(str(path))
    return state
