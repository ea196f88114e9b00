"""Weight averaging beside training: "X" and "X + SWA" from one run.

    θ̄_t = θ_t for t < t₀;   θ̄_t = mean of θ_{t₀} … θ_t for t ≥ t₀

Arpit et al., "Ensemble of Averages", 2022 (t₀ = 100; their code starts one step earlier); Izmailov et al., 2018.
The average holds what makes a prediction, the featurizer and the classifier; no algorithm needs to know of it.
Floating-point buffers, such as running statistics of batch-norm, are averaged as the weights are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from fgmix.algorithms import Algorithm


def predictor_tensors(algorithm: Algorithm) -> dict[str, Tensor]:
    """Parameters and buffers of featurizer and classifier: what a prediction depends on."""
    state = {}
    for part in ("featurizer", "classifier"):
        module = getattr(algorithm, part)
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        state.update({f"{part}.{name}": tensor.detach() for name, tensor in tensors.items()})
    return state


class RunningMean:
    """Mean of the weights from step `start` on.

    Args:
        algorithm: what is averaged.
        start: t₀, the first step that enters.

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
        self.tensors = {name: tensor.clone() for name, tensor in predictor_tensors(algorithm).items()}

    def update(self, algorithm: Algorithm, step: int) -> None:
        """Take in the weights after step `step` (counted from 1)."""
        n = max(1, step - self.start + 1)  # how many weights are in the mean, this one included
        now = predictor_tensors(algorithm)
        floating = [name for name, tensor in now.items() if tensor.is_floating_point()]
        torch._foreach_lerp_([self.tensors[f] for f in floating], [now[f] for f in floating], 1 / n)
        for name in now.keys() - set(floating):
            self.tensors[name].copy_(now[name])

    @contextmanager
    def applied_to(self, algorithm: Algorithm) -> Iterator[None]:
        """Within the block the algorithm predicts with the average."""
        live = predictor_tensors(algorithm)
        raw = {name: tensor.clone() for name, tensor in live.items()}
        _copy(self.tensors, live)
        try:
            yield
        finally:
            _copy(raw, live)

    def state_dict(self) -> dict[str, Tensor]:
        return self.tensors

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        _copy(state, self.tensors)


def _copy(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    for name, tensor in target.items():
        tensor.copy_(source[name])
