"""Weight averaging during training: "X" and "X + SWA" (or "X + SWAD") from one run.

The featurizer and the classifier are averaged, which make a prediction; algorithms need no code for it. Floating-point
buffers, such as the running statistics of batch-norm, are averaged like weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.optim.swa_utils import get_swa_multi_avg_fn

from fgmix.algorithms import Algorithm
from fgmix.errors import UserError, bad_value
from fgmix.networks.lora import list_base

# One call for all tensors: on a GPU, a launch per tensor would take longer than the computation. On one core of a CPU
# it takes 8.1 ms for ResNet-50, and 8.6 ms with a call per tensor.
_add_to_means = get_swa_multi_avg_fn()


def get_predictor_tensors(algorithm: Algorithm) -> dict[str, Tensor]:
    """Return parameters and buffers of the featurizer and the classifier, on which a prediction depends; of a network
    with adapters without the base, which is the same in all steps."""
    return PredictorTensors(algorithm).get()


class PredictorTensors:
    """The tensors of `get_predictor_tensors`, whose modules are found once and not in every step.

    The modules are kept, not the tensors: a module may replace one of its buffers.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self.places: list[tuple[str, nn.Module, str]] = []
        for part in ("featurizer", "classifier"):
            root: nn.Module = getattr(algorithm, part)
            base = list_base(root)
            for name in [*dict(root.named_parameters()), *dict(root.named_buffers())]:
                if name in base:
                    continue
                path, _, attribute = name.rpartition(".")
                self.places.append((f"{part}.{name}", root.get_submodule(path), attribute))

    def get(self) -> dict[str, Tensor]:
        """Return the present tensors by name, detached."""
        return {name: getattr(module, attribute).detach() for name, module, attribute in self.places}


class Mean:
    """Running mean of named tensors, of which `count` were added before; if none, the first `add` replaces the content.

    Tensors that are not floating-point, such as counters, keep their latest value.
    """

    def __init__(self, tensors: Mapping[str, Tensor], count: int = 0) -> None:
        self.tensors = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        if type(count) is not int:
            raise ValueError("the number of averaged tensors is not an integer")
        self.count = count

    def add(self, tensors: Mapping[str, Tensor]) -> None:
        pairs = [(mean, tensors[name]) for name, mean in self.tensors.items()]
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

    def update(self, step: int) -> None:
        """Add the weights after step `step` (counted from 1)."""
        raise NotImplementedError

    @property
    def is_raw(self) -> bool:
        """Whether the averaged tensors are known to be those of the raw model."""
        return False

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
    earlier); Izmailov et al., 2018, https://arxiv.org/abs/1803.05407. `start` is t₀.

    Example:
        >>> from torch import nn
        >>> from fgmix.algorithms import create
        >>> erm = create("erm", featurizer=nn.Identity(), classifier=nn.Linear(1, 2), n_domains=1)
        >>> mean = RunningMean(erm, start=1)
        >>> for t in (1, 2, 3):
        ...     _ = nn.init.constant_(erm.classifier.weight, t)
        ...     mean.update(t)
        >>> with mean.applied_to(erm):
        ...     erm.classifier.weight.flatten().tolist()
        [2.0, 2.0]
    """

    def __init__(self, algorithm: Algorithm, start: int) -> None:
        self.start = start
        self.tensors = PredictorTensors(algorithm)
        self.mean = Mean(self.tensors.get())

    def update(self, step: int) -> None:
        if step <= self.start:
            self.mean.count = 0  # the next `add` replaces the content
        self.mean.add(self.tensors.get())

    @property
    def is_raw(self) -> bool:
        return self.mean.count == 1

    def average(self) -> dict[str, Tensor]:
        return self.mean.tensors

    def state_dict(self) -> dict[str, Any]:
        return self.mean.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mean = Mean(**state)


def _copy(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    for name, tensor in target.items():
        tensor.copy_(source[name])


@dataclass(frozen=True)
class Segment:
    """Mean of the weights between two evaluations, and the validation loss at the second."""

    index: int
    loss: float
    mean: dict[str, Tensor]


@dataclass(frozen=True)
class Valley:
    """The segments being averaged: their start t_s, the limit of their losses, their mean so far."""

    start: int
    limit: float
    mean: Mean


class SWAD:
    """SWAD: the average over the flat part of the validation loss, found during training.

    The weights of every step are added to the mean of the open segment; every evaluation closes segment n with a
    validation loss E_n. With N_s (optimum patience), N_e (overfit patience) and tolerance r:

        start   the first n at which E_{n−N_s+1} is the least of the last N_s losses; the valley starts there, at t_s
        limit   (1 + r) · mean(E_{n−N_s+1} … E_n)
        end     the first later n with min(E_{n−N_e+1} … E_n) > limit; the last segment of the valley is n − N_e
        result  the mean of the valley's segments, each with the same weight; without a start, the last segment

    Cha et al., "SWAD: Domain Generalization by Seeking Flat Minima", 2021, https://arxiv.org/abs/2102.08604. Variant:
    the authors' code, which adds segments at the start (`_list_segments_at_start`); docs/averaging.md lists what this
    changes. Holds at most max(N_s, N_e) + 2 copies of the tensors: the recent segments, the open one, the result.

    Args:
        n_s: N_s: the valley starts when the first of N_s losses in a row is the least of them.
        n_e: N_e: the valley ends when N_e losses in a row exceed the limit.
        tolerance: r: the limit is 1 + r times the mean of the losses at the start.

    Example:
        >>> import torch
        >>> swad = SWAD(n_s=2, n_e=3, tolerance=0.5)
        >>> for step, loss in enumerate([3.0, 1.0, 1.1, 1.2, 9.0, 9.0, 9.0]):
        ...     swad.update({"weight": torch.tensor(float(step))})
        ...     swad.close_segment(loss)
        >>> swad.ended, swad.average()["weight"].item()  # segments 1, 2, 3
        (True, 2.0)
    """

    def __init__(self, n_s: int = 3, n_e: int = 6, tolerance: float = 0.3) -> None:
        for name, patience in (("n_s", n_s), ("n_e", n_e)):
            if patience < 1:
                raise bad_value(name, "a positive integer", patience)
        if tolerance < 0:
            raise bad_value("tolerance", "zero or more", tolerance)
        self.n_s, self.n_e, self.tolerance = n_s, n_e, tolerance
        self.closed = 0  # segments so far
        self.open: Mean | None = None
        self.recent: list[Segment] = []
        self.valley: Valley | None = None
        self.ended = False

    def update(self, tensors: Mapping[str, Tensor]) -> None:
        """Add the weights after a step."""
        if self.ended:
            return
        if self.open is None:
            self.open = Mean(tensors)
        self.open.add(tensors)

    def close_segment(self, val_loss: float) -> None:
        """End the open segment at an evaluation; once `ended` is true the average is final, and training may stop.

        The loss is of the raw model in evaluation mode, mean over the holdout parts of the source domains.
        """
        if self.ended:
            return
        self.recent.append(Segment(self.closed, val_loss, self._require_open().tensors))
        self.recent = self.recent[-max(self.n_s, self.n_e) :]
        self.closed, self.open = self.closed + 1, None
        if self.valley is None:
            self._find_start()
        else:
            self._extend(self.valley)

    def average(self) -> dict[str, Tensor]:
        """Return SWAD's weights if training stops here. Do not modify them: they may be the running means."""
        if self.valley is None and self.recent:
            return self.recent[-1].mean
        if self.valley is None:
            return self._require_open().tensors
        if self.ended:
            return self.valley.mean.tensors
        mean = Mean(self.valley.mean.tensors, self.valley.mean.count)
        rest = self.recent[-self.n_e :][1:]  # the first was added at the last evaluation
        while rest and _least(rest) <= self.valley.limit:
            mean.add(rest.pop(0).mean)
        return mean.tensors

    def _require_open(self) -> Mean:
        if self.open is None:
            raise UserError("A segment should hold the weights of at least one step. Found none. Call `update` first.")
        return self.open

    def _find_start(self) -> None:
        window = self.recent[-self.n_s :]
        if len(window) < self.n_s or window[0].loss > _least(window):
            return
        limit = (1 + self.tolerance) * sum(segment.loss for segment in window) / self.n_s
        self.valley = Valley(window[0].index, limit, Mean(window[0].mean))
        for segment in self._list_segments_at_start(limit):
            self.valley.mean.add(segment.mean)

    def _list_segments_at_start(self, limit: float) -> list[Segment]:
        """Return the segments that the authors' code adds as soon as it finds the start.

        With N_e > N_s: of the first N_e − N_s + 1 of the last N_e segments (which end with t_s once there are N_e), the
        last ones in a row under the limit, except the earliest of these; `_extend` adds t_s and later ones again. With
        N_e < N_s: the segments after t_s that `_extend` no longer reaches. With N_e ≤ N_s, the first addition replaces
        t_s (see `Mean`).
        """
        if self.n_e <= self.n_s:
            return self.recent[-self.n_s :][1 : 1 + self.n_s - self.n_e]
        candidates = self.recent[: self.n_e - self.n_s + 1]
        above = [i for i, segment in enumerate(candidates) if segment.loss > limit]
        earliest = above[-1] + 1 if above else 0
        return candidates[earliest + 1 :]

    def _extend(self, valley: Valley) -> None:
        """Add the oldest of the last N_e segments, or end the valley if the losses of all of them exceed the limit."""
        window = self.recent[-self.n_e :]
        if window[0].index < valley.start:
            return
        if _least(window) > valley.limit:
            self.ended, self.recent = True, []
        else:
            valley.mean.add(window[0].mean)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint: plain values and references to the tensors."""
        return {
            "closed": self.closed,
            "ended": self.ended,
            "open": self.open and self.open.state_dict(),
            "recent": [{"index": s.index, "loss": s.loss, "mean": s.mean} for s in self.recent],
            "valley": self.valley
            and {"start": self.valley.start, "limit": self.valley.limit, "mean": self.valley.mean.state_dict()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state_dict()`, which does not contain the settings."""
        self.closed, self.ended = state["closed"], state["ended"]
        self.open = state["open"] and Mean(**state["open"])
        self.recent = [Segment(s["index"], s["loss"], Mean(s["mean"]).tensors) for s in state["recent"]]
        valley = state["valley"]
        self.valley = valley and Valley(valley["start"], valley["limit"], Mean(**valley["mean"]))


def _least(segments: list[Segment]) -> float:
    return min(segment.loss for segment in segments)


class OverfitAware(WeightAverage):
    """SWAD as the weight average of a run, which starts at step `start`."""

    follows_losses = True

    def __init__(self, algorithm: Algorithm, start: int = 1) -> None:
        self.start = start
        self.swad = SWAD()
        self.tensors = PredictorTensors(algorithm)
        self.initial = Mean(self.tensors.get()).tensors

    def update(self, step: int) -> None:
        if step >= self.start:
            self.swad.update(self.tensors.get())

    def add_loss(self, validation_loss: float) -> None:
        if self.swad.open is not None or self.swad.ended:
            self.swad.close_segment(validation_loss)

    def average(self) -> dict[str, Tensor]:
        return self.swad.average() if self.swad.closed or self.swad.open else self.initial

    def state_dict(self) -> dict[str, Any]:
        return self.swad.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.swad.load_state_dict(state)
