"""SWAD: average the weights over the flat part of the validation loss, found during training.

The weights of every step are added to the mean of the open segment; every evaluation closes segment n with a
validation loss E_n.
With N_s (optimum patience), N_e (overfit patience) and tolerance r:

    start   the first n at which E_{n−N_s+1} is the least of the last N_s losses; the valley starts at t_s = n − N_s + 1
    limit   (1 + r) · mean(E_{n−N_s+1} … E_n)
    end     the first later n with min(E_{n−N_e+1} … E_n) > limit; the last segment of the valley is n − N_e
    result  the mean of the valley's segments, each with the same weight; without a start, the last segment

Cha et al., "SWAD: Domain Generalization by Seeking Flat Minima", 2021, https://arxiv.org/abs/2102.08604. Variant: the
authors' code, which adds further segments at the start (`_segments_at_start`); docs/averaging.md lists what this
changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fgmix.algorithms import Algorithm
from fgmix.errors import UserError, bad_value
from fgmix.training.averaging import Mean, WeightAverage, get_predictor_tensors

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Segment:
    """Mean of the weights between two evaluations, and the validation loss at the second."""

    index: int
    loss: float
    mean: Tensors


@dataclass(frozen=True)
class Valley:
    """The segments being averaged: their start t_s, the limit of their losses, their mean so far."""

    start: int
    limit: float
    mean: Mean


class SWAD:
    """The overfit-aware average of a run.

    Holds at most max(N_s, N_e) + 2 copies of the tensors: the recent segments, the open one and the result.

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
        """End the open segment at an evaluation.

        Once `ended` is true the average is final, and training may stop.

        Args:
            val_loss: of the raw model in evaluation mode, mean over the holdout parts of the source domains.
        """
        if self.ended:
            return
        if self.open is None:
            raise UserError("A segment should hold the weights of at least one step. Found none. Call `update` first.")
        self.recent.append(Segment(self.closed, val_loss, self.open.tensors))
        self.recent = self.recent[-max(self.n_s, self.n_e) :]
        self.closed, self.open = self.closed + 1, None
        if self.valley is None:
            self._find_start()
        else:
            self._extend(self.valley)

    def average(self) -> Tensors:
        """Return SWAD's weights if training stops here. Do not modify them: they may be the running means."""
        if self.valley is None:
            return self._latest()
        if self.ended:
            return self.valley.mean.tensors
        mean = Mean(self.valley.mean.tensors, self.valley.mean.count)
        rest = self.recent[-self.n_e :][1:]  # the first was added at the last evaluation
        while rest and _least(rest) <= self.valley.limit:
            mean.add(rest.pop(0).mean)
        return mean.tensors

    def _latest(self) -> Tensors:
        if self.recent:
            return self.recent[-1].mean
        if self.open is not None:
            return self.open.tensors
        raise UserError("An average should hold the weights of at least one step. Found none. Call `update` first.")

    def _find_start(self) -> None:
        window = self.recent[-self.n_s :]
        if len(window) < self.n_s or window[0].loss > _least(window):
            return
        limit = (1 + self.tolerance) * sum(segment.loss for segment in window) / self.n_s
        self.valley = Valley(window[0].index, limit, Mean(window[0].mean))
        for segment in self._segments_at_start(limit):
            self.valley.mean.add(segment.mean)

    def _segments_at_start(self, limit: float) -> list[Segment]:
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
        self.initial = Mean(get_predictor_tensors(algorithm)).tensors

    def update(self, algorithm: Algorithm, step: int) -> None:
        if step >= self.start:
            self.swad.update(get_predictor_tensors(algorithm))

    def add_loss(self, validation_loss: float) -> None:
        if self.swad.open is not None or self.swad.ended:
            self.swad.close_segment(validation_loss)

    def average(self) -> dict[str, Tensor]:
        return self.swad.average() if self.swad.closed or self.swad.open else self.initial

    def state_dict(self) -> dict[str, Any]:
        return self.swad.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.swad.load_state_dict(state)
