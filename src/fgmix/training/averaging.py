"""Weight averaging during training: "X" and "X + SWA" (or "X + SWAD") from one run.

The featurizer and the classifier are averaged, which make a prediction; algorithms need no code for it. Floating-point
buffers, such as the running statistics of batch-norm, are averaged like weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from torch import Tensor

from fgmix.algorithms import Algorithm
from fgmix.records.schema import ResolvedSpec
from fgmix.training.swad import SWAD, Mean


def predictor_tensors(algorithm: Algorithm) -> dict[str, Tensor]:
    """Parameters and buffers of the featurizer and the classifier, on which a prediction depends."""
    state = {}
    for part in ("featurizer", "classifier"):
        module = getattr(algorithm, part)
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        state.update({f"{part}.{name}": tensor.detach() for name, tensor in tensors.items()})
    return state


class WeightAverage:
    """An average of the weights of a run over its steps.

    If `follows_losses` is true, `evaluated` may change the average: the raw model is then evaluated first.
    """

    follows_losses: ClassVar[bool] = False

    def update(self, algorithm: Algorithm, step: int) -> None:
        """Add the weights after step `step` (counted from 1)."""
        raise NotImplementedError

    def evaluated(self, validation_loss: float) -> None:
        """Use an evaluation of the raw model: its mean loss on the holdout parts of the source domains."""

    def average(self) -> dict[str, Tensor]:
        """The averaged tensors, as they are now."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        raise NotImplementedError

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise NotImplementedError

    @contextmanager
    def applied_to(self, algorithm: Algorithm) -> Iterator[None]:
        """Within the block the algorithm predicts with the average."""
        live = predictor_tensors(algorithm)
        raw = {name: tensor.clone() for name, tensor in live.items()}
        _copy(self.average(), live)
        try:
            yield
        finally:
            _copy(raw, live)


class RunningMean(WeightAverage):
    """SWA: the mean of the weights from step t₀ on.

        θ̄_t = θ_t for t < t₀;   θ̄_t = mean of θ_{t₀} … θ_t for t ≥ t₀

    Arpit et al., "Ensemble of Averages", 2022, https://arxiv.org/abs/2110.10832 (t₀ = 100; their code starts one step
    earlier); Izmailov et al., 2018, https://arxiv.org/abs/1803.05407.

    Args:
        algorithm: what is averaged.
        start: t₀, the first step in the average.

    Example:
        >>> from torch import nn
        >>> from fgmix.algorithms import create
        >>> erm = create("erm", featurizer=nn.Identity(), classifier=nn.Linear(1, 2), n_domains=1)
        >>> mean = RunningMean(erm, start=1)
        >>> for t in (1, 2, 3):
        ...     _ = nn.init.constant_(erm.classifier.weight, t)
        ...     mean.update(erm, t)
        >>> with mean.applied_to(erm):
        ...     erm.classifier.weight.flatten().tolist()
        [2.0, 2.0]
    """

    def __init__(self, algorithm: Algorithm, start: int) -> None:
        self.start = start
        self.mean = Mean(predictor_tensors(algorithm))

    def update(self, algorithm: Algorithm, step: int) -> None:
        if step <= self.start:
            self.mean.count = 0  # the next `add` replaces the content
        self.mean.add(predictor_tensors(algorithm))

    def average(self) -> dict[str, Tensor]:
        return self.mean.tensors

    def state_dict(self) -> dict[str, Any]:
        return {"tensors": self.mean.tensors, "count": self.mean.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mean = Mean(**state)


class OverfitAware(WeightAverage):
    """SWAD: the mean over the flat part of the validation loss, see `fgmix.training.swad`."""

    follows_losses = True

    def __init__(self, algorithm: Algorithm, start: int = 1) -> None:
        self.start = start
        self.swad = SWAD()
        self.initial = Mean(predictor_tensors(algorithm)).tensors

    def update(self, algorithm: Algorithm, step: int) -> None:
        if step >= self.start:
            self.swad.update(predictor_tensors(algorithm))

    def evaluated(self, validation_loss: float) -> None:
        if self.swad.open is not None or self.swad.ended:
            self.swad.close_segment(validation_loss)

    def average(self) -> dict[str, Tensor]:
        return self.swad.average() if self.swad.closed or self.swad.open else self.initial

    def state_dict(self) -> dict[str, Any]:
        return self.swad.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.swad.load_state_dict(state)


def build_average(spec: ResolvedSpec, algorithm: Algorithm) -> WeightAverage | None:
    """The weight average of a spec; None without one."""
    if spec.averaging == "swa":
        return RunningMean(algorithm, spec.averaging_start)
    return OverfitAware(algorithm, spec.averaging_start) if spec.averaging == "swad" else None


def _copy(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    for name, tensor in target.items():
        tensor.copy_(source[name])
