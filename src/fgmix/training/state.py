"""Checkpoints for exact resume: everything that the next step depends on, in one file, written atomically."""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fgmix.algorithms import Algorithm
from fgmix.errors import UserError, as_sentence
from fgmix.records.digests import Damaged, check_zip, damaged, seal_zip
from fgmix.records.files import read_bytes, write_bytes
from fgmix.records.schema import Model
from fgmix.training.averaging import WeightAverage

MODEL = ("featurizer.", "classifier.")  # prefixes of the tensors that a prediction depends on


@dataclass
class Standing:
    """State of a run in addition to its weights.

    Args:
        step: steps done.
        metrics_length: length of metrics.jsonl at that step, in bytes.
        best: by model, the highest validation accuracy (or other metric of the run) so far.
        sums: sums of the algorithm's metrics since the last evaluation.
        counted: how many steps are in the sums.
        scaler: state of the loss scaling, if it is used.
        unseen: by model and test domain, the metrics of the weights that validation selects so far.
    """

    step: int = 0
    metrics_length: int = 0
    best: dict[Model, float] = field(default_factory=dict)
    sums: dict[str, Tensor] = field(default_factory=dict)
    counted: int = 0
    scaler: dict[str, Tensor] = field(default_factory=dict)
    unseen: dict[Model, dict[str, dict[str, Any]]] = field(default_factory=dict)


def save(paths: tuple[Path, Path], algorithm: Algorithm, average: WeightAverage | None, at: Standing) -> None:
    """Write the checkpoint at the first path; the one before it moves to the second.

    If the process is killed, one of the two is always complete.
    """
    state: dict[str, Any] = {
        "algorithm": algorithm.state_dict(),
        "average": average.state_dict() if average else None,
        "progress": vars(at),
    }
    newest, before = paths
    data = _packed(state)
    if newest.exists():
        newest.replace(before)
    write_bytes(newest, data)


def read(path: Path, device: torch.device | str) -> dict[str, Any]:
    """The content of a checkpoint, which is only tensors and plain values; a damaged one raises an error."""
    state = _unpacked(path, device)
    if state.keys() != {"algorithm", "average", "progress"} or not _is_standing(state["progress"]):
        raise damaged(str(path))
    return state


def _is_standing(values: object) -> bool:
    if not isinstance(values, dict) or values.keys() != {each.name for each in fields(Standing)}:
        return False
    counts = (values["step"], values["metrics_length"])
    return all(type(count) is int and count >= 0 for count in counts) and isinstance(values["best"], dict)


def restore(state: dict[str, Any], path: Path, algorithm: Algorithm, average: WeightAverage | None) -> Standing:
    """Load the state that `read` returned into the algorithm and the average; `path` is for the error."""
    try:
        algorithm.load_state_dict(state["algorithm"])
        if average:
            average.load_state_dict(state["average"])
        return Standing(**state["progress"])
    except (RuntimeError, KeyError, TypeError) as error:
        raise UserError(
            f"Expected this run's checkpoint at {path}. Found one of another run ({type(error).__name__}). Delete the "
            "file to start the run again."
        ) from error


def save_weights(path: Path, algorithm: Algorithm, *, model_only: bool = False) -> None:
    """Write all tensors of the algorithm (the model, and a policy if it has one), without optimisers.

    Args:
        path: the file, written atomically.
        algorithm: whose weights.
        model_only: only featurizer and classifier: a policy can be many times as large.
    """
    tensors = {
        name: value
        for name, value in algorithm.state_dict().items()
        if isinstance(value, Tensor) and (not model_only or name.startswith(MODEL))
    }
    write_bytes(path, _packed(tensors))


def check_weights(path: Path) -> None:
    """Raise an error if a file of weights is damaged or missing."""
    if not path.exists():
        raise Damaged(f"Expected the file that was written at {path}. Found none.")
    check_zip(read_bytes(path), str(path))


def read_weights(path: Path, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """The tensors that `save_weights` wrote; a damaged file raises an error."""
    tensors: dict[str, Tensor] = _unpacked(path, device)
    return tensors


def load_weights(path: Path, algorithm: Algorithm, *, model_only: bool = False) -> None:
    """Load what `save_weights` wrote.

    Args:
        path: the file.
        algorithm: changed in place.
        model_only: whether the file may contain featurizer and classifier only.
    """
    tensors = read_weights(path, next(algorithm.parameters()).device)
    missing, unexpected = algorithm.load_state_dict(tensors, strict=False)
    needed = [name for name in missing if not name.endswith("_extra_state")]
    if unexpected or [name for name in needed if not model_only or name.startswith(MODEL)]:
        raise UserError(f"Expected weights of this algorithm at {path}. Found others. Check the run's folder.")


def _packed(state: dict[str, Any]) -> bytes:
    """The bytes of a sealed torch file."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return seal_zip(buffer.getvalue())


def _unpacked(path: Path, device: torch.device | str) -> dict[str, Any]:
    data = read_bytes(path)
    check_zip(data, str(path))
    try:
        state = torch.load(io.BytesIO(data), map_location=device, weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, LookupError, TypeError, ValueError, EOFError) as error:
        if as_sentence(error):  # a lost device, too little memory
            raise
        raise damaged(str(path)) from error  # the digest is correct, but the content is not plain tensors
    if not isinstance(state, dict):
        raise damaged(str(path))
    return state
