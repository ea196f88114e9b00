"""Exact resume: everything that the next step depends on, in one file that is whole or absent."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from fgmix.algorithms import Algorithm
from fgmix.errors import UserError
from fgmix.files import write_atomically
from fgmix.runs.averaging import WeightAverage

MODEL = ("featurizer.", "classifier.")  # names of what a prediction depends on begin so


@dataclass
class Progress:
    """Where a run stands, beside the weights.

    Args:
        step: steps done.
        metrics_length: length of metrics.jsonl at that moment.
        best: by model, the highest validation accuracy so far.
        sums: sums of the algorithm's metrics since the last evaluation.
        counted: how many steps are in the sums.
    """

    step: int = 0
    metrics_length: int = 0
    best: dict[str, float] = field(default_factory=dict)
    sums: dict[str, Tensor] = field(default_factory=dict)
    counted: int = 0


def save(path: Path, algorithm: Algorithm, average: WeightAverage | None, progress: Progress) -> None:
    """Write the checkpoint; a kill at any moment leaves the old one or the new one."""
    state: dict[str, Any] = {
        "algorithm": algorithm.state_dict(),
        "average": average.state_dict() if average else None,
        "progress": vars(progress),
    }
    write_atomically(path, lambda file: torch.save(state, file))


def load(path: Path, algorithm: Algorithm, average: WeightAverage | None) -> Progress:
    """Restore what `save` wrote; nothing but tensors and plain values is read from the file."""
    device = next(algorithm.parameters()).device
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        algorithm.load_state_dict(state["algorithm"])
        if average:
            average.load_state_dict(state["average"])
        return Progress(**state["progress"])
    except (RuntimeError, KeyError, EOFError, TypeError, UnpicklingError) as error:
        raise UserError(
            f"Expected this run's checkpoint at {path}. Found one that does not fit it ({type(error).__name__}). "
            "Delete the file to start the run over."
        ) from error


def save_weights(path: Path, algorithm: Algorithm, *, model_only: bool = False) -> None:
    """All tensors of the algorithm (the model, and a policy where it has one), without optimisers.

    Args:
        path: the file; whole or absent.
        algorithm: whose.
        model_only: featurizer and classifier alone: a policy can be many times as large.
    """
    tensors = {
        name: value
        for name, value in algorithm.state_dict().items()
        if isinstance(value, Tensor) and (not model_only or name.startswith(MODEL))
    }
    write_atomically(path, lambda file: torch.save(tensors, file))


def load_weights(path: Path, algorithm: Algorithm, *, model_only: bool = False) -> None:
    """Load what `save_weights` wrote.

    Args:
        path: the file.
        algorithm: changed in place.
        model_only: whether the file may lack all but featurizer and classifier.
    """
    tensors = torch.load(path, map_location=next(algorithm.parameters()).device, weights_only=True)
    missing, unexpected = algorithm.load_state_dict(tensors, strict=False)
    needed = [name for name in missing if not name.endswith("_extra_state")]
    if unexpected or [name for name in needed if not model_only or name.startswith(MODEL)]:
        raise UserError(f"Expected weights of this algorithm at {path}. Found others. Check the run's folder.")
