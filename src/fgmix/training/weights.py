"""Files of weights, and which of them a run keeps: at its best step, after the last, and snapshots on the way."""

from __future__ import annotations

import io
import pickle
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fgmix.algorithms import Algorithm
from fgmix.errors import UserError, as_sentence
from fgmix.records.digests import Damaged, check_zip, damaged, seal_zip
from fgmix.records.evaluations import Model
from fgmix.records.files import read_bytes, write_bytes
from fgmix.records.schema import ResolvedSpec, Which, keeps
from fgmix.records.store import RunFolder
from fgmix.training.averaging import WeightAverage

MODEL = ("featurizer.", "classifier.")  # prefixes of the tensors that a prediction depends on


class KeptWeights:
    """The weights that a run keeps, of the raw and of the averaged model.

    Args:
        spec: the run's; `keep` and `snapshots` say which weights are kept.
        folder: where they are written.
        algorithm: whose weights.
        average: the run's weight average, if it has one.
    """

    def __init__(
        self, spec: ResolvedSpec, folder: RunFolder, algorithm: Algorithm, average: WeightAverage | None
    ) -> None:
        self.spec, self.folder, self.algorithm, self.average = spec, folder, algorithm, average
        self.models: tuple[Model, ...] = ("raw",) if spec.averaging == "none" else ("raw", spec.averaging)
        # Evenly spaced from the initial weights to the last, for paths on loss surfaces.
        self.snapshot_steps = {
            round(i * spec.steps / spec.snapshots) for i in range(spec.snapshots + 1) if spec.snapshots
        }

    def save(self, which: Which, model: Model) -> None:
        """Save the weights as those of the best step so far or of the last, if the run keeps them."""
        if keeps(self.spec, which, model):
            self._write(self.folder.weights(which, model), model, model_only=self.spec.keep == "best")

    def save_snapshot(self, step: int) -> None:
        """Save the weights after a step, if the run keeps a snapshot of it."""
        if step in self.snapshot_steps:
            for model in self.models:
                path = self.folder.snapshot(step, model)
                path.parent.mkdir(exist_ok=True)
                self._write(path, model, model_only=True)

    def _write(self, path: Path, model: Model, *, model_only: bool) -> None:
        with self.average.applied_to(self.algorithm) if self.average and model != "raw" else nullcontext():
            save_weights(path, self.algorithm, model_only=model_only)


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
    write_bytes(path, pack(tensors))


def check_weights(path: Path) -> None:
    """Raise an error if a file of weights is damaged or missing."""
    if not path.exists():
        raise Damaged(f"Expected the file that was written at {path}. Found none.")
    check_zip(read_bytes(path), str(path))


def read_weights(path: Path, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Read the tensors that `save_weights` wrote; a damaged file raises an error."""
    tensors: dict[str, Tensor] = unpack(path, device)
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


def pack(state: dict[str, Any]) -> bytes:
    """Return the bytes of a torch file with a digest."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return seal_zip(buffer.getvalue())


def unpack(path: Path, device: torch.device | str) -> dict[str, Any]:
    """Read a file of `pack`, with only tensors and plain values; a damaged one raises an error."""
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
