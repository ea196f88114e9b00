"""What `fgmix.logs` uses of wandb, without the library: runs are kept in memory and resumed by their id."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any


class Run:
    def __init__(self, **how: Any) -> None:
        self.how = how
        self.history: list[tuple[int, dict[str, float]]] = []
        self.starting_step = 0
        self.finished = False

    def log(self, points: dict[str, float], *, step: int, commit: bool) -> None:
        assert commit
        assert all(before < step for before, _ in self.history), "wandb drops steps that do not increase"
        self.history.append((step, points))

    def finish(self) -> None:
        self.finished = True


class StandIn(ModuleType):
    """The module `wandb`."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.runs: dict[str, Run] = {}

    def init(self, **how: Any) -> Run:
        assert how["resume"] == "allow"
        run = self.runs.setdefault(how["id"], Run(**how))
        run.starting_step = run.history[-1][0] + 1 if run.history else 0
        return run


def steps_of(runs: Sequence[Run]) -> dict[str, list[int]]:
    """Steps by tag, as they were logged."""
    found: dict[str, list[int]] = {}
    for run in runs:
        for step, points in run.history:
            for tag in points:
                found.setdefault(tag, []).append(step)
    return found
