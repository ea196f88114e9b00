"""Weight averaging during training: "X" and "X + SWA" (or "X + SWAD") from one run.

The featurizer and the classifier are averaged, which make a prediction; algorithms need no code for it. Floating-point
buffers, such as the running statistics of batch-norm, are averaged like weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from torch import Tensor
from torch.optim.swa_utils import get_swa_multi_avg_fn

from fgmix.algorithms import Algorithm

# One call for all tensors: on a GPU, a launch per tensor would take longer than the computation. On one core of a CPU
# it takes 8.1 ms for ResNet-50, and 8.6 ms with a call per tensor.
_add_to_means = get_swa_multi_avg_fn()


def get_predictor_tensors(algorithm: Algorithm) -> dict[str, Tensor]:
    """Return parameters and buffers of the featurizer and the classifier, on which a prediction depends."""
    state = {}
    for part in ("featurizer", "classifier"):
        module = getattr(algorithm, part)
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        state.update({f"{part}.{name}": tensor.detach() for name, tensor in tensors.items()})
    return state


class Mean:
    """Running mean of named tensors. Tensors that are not floating-point, such as counters, keep their latest value.

    Args:
        tensors: the content until the first `add`, which replaces it.
        count: how many were added before.
    """

    def __init__(self, tensors: Mapping[str, Tensor], count: int = 0) -> None:
        self.tensors = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        self.count = count

    def add(self, tensors: Mapping[str, Tensor]) -> None:
        pairs = [(mean, tensors[name].detach()) for name, mean in self.tensors.items()]
        averaged = [pair for pair in pairs if pair[0].is_floating_point()]
        if averaged:
            means, values = zip(*averaged)
            _add_to_means(means, values, self.count)
        for latest, value in pairs:
            if not latest.is_floating_point():
                latest.copy_(value)
        self.count += 1

    def state_dict(self) -> dict[str, Any]:
        return {"tensors": self.tensors, "count": self.count}


class WeightAverage:
    """An average of the weights of a run over its steps.

    If `follows_losses` is true, `add_loss` may change the average: the raw model is then evaluated first.
    """

    follows_losses: ClassVar[bool] = False

    def update(self, algorithm: Algorithm, step: int) -> None:
        """Add the weights after step `step` (counted from 1)."""
        raise NotImplementedError

    def add_loss(self, validation_loss: float) -> None:
        """Use an evaluation of the raw model: its mean loss on the holdout parts of the source domains."""

    def average(self) -> dict[str, Tensor]:
        """Return the averaged tensors, as they are now."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        raise NotImplementedError

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise NotImplementedError

    @contextmanager
    def applied_to(self, algorithm: Algorithm) -> Iterator[None]:
        """Let the algorithm predict with the average within the block."""
        live = get_predictor_tensors(algorithm)
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
        self.mean = Mean(get_predictor_tensors(algorithm))

    def update(self, algorithm: Algorithm, step: int) -> None:
        if step <= self.start:
            self.mean.count = 0  # the next `add` replaces the content
        self.mean.add(get_predictor_tensors(algorithm))

    def average(self) -> dict[str, Tensor]:
        return self.mean.tensors

    def state_dict(self) -> dict[str, Any]:
        return self.mean.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mean = Mean(**state)


def _copy(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    for name, tensor in target.items():
        tensor.copy_(source[name])
