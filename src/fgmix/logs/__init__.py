"""Follow runs in TensorBoard, Weights & Biases or MLflow: `fgmix train --log tensorboard`, `fgmix sweep --log mlflow`.

The evaluations of `metrics.jsonl` are logged as they are made. A log is not part of a run's record or name, and an
error of a log does not stop the run. For another target, pass your own `on_evaluation` to `fgmix.train`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from fgmix.errors import UserError, unknown
from fgmix.records.evaluations import Evaluation
from fgmix.records.schema import ResolvedSpec, RunRecord
from fgmix.records.store import RunFolder

NAMES = ("mlflow", "tensorboard", "wandb")  # each is a module here, a library, and an extra
VARIABLES = ("MLFLOW_", "WANDB_")  # beginnings of the libraries' own environment variables


class Target(Protocol):
    """A log of one run."""

    def has(self, tag: str, step: int) -> bool:
        """Whether a point was logged before the run was interrupted."""
        ...

    def write(self, step: int, points: dict[str, float]) -> None:
        """Add the points of an evaluation, by tag."""
        ...

    def close(self) -> None: ...


def check(names: Sequence[str]) -> tuple[str, ...]:
    """Check the names and drop duplicates; UserError for an unknown one, or if its library is not installed."""
    for name in names:
        if name not in NAMES:
            raise unknown("target of --log", name, NAMES)
        if find_spec(name) is None:
            raise UserError(
                f"Expected the library {name} for --log {name}. It is not installed. Run `pip install 'fgmix[{name}]'`."
            )
    return tuple(dict.fromkeys(names))


class Log:
    """An `on_evaluation` of `fgmix.train` that logs one run.

    Args:
        names: of the targets.
        out: the folder of runs, which also contains the folders of targets that write files.

    Example:
        >>> from pathlib import Path
        >>> with Log([], Path("runs")) as log:  # such as ["tensorboard"]
        ...     pass  # log.complete(fgmix.train(spec, "runs", on_evaluation=log))
    """

    def __init__(self, names: Sequence[str], out: Path) -> None:
        self.out = out
        self.waiting = list(names)
        self.open: dict[str, Target] = {}
        self.done: set[tuple[str, int]] = set()  # targets and steps that are logged

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        for name, target in list(self.open.items()):
            with self._continue_on_error(name):
                target.close()

    def __call__(self, spec: ResolvedSpec, evaluation: Evaluation) -> None:
        """Log an evaluation; the first call also logs those from before an interruption."""
        self._write(spec, [evaluation])

    def complete(self, record: RunRecord) -> None:
        """Log the missing evaluations of a finished run."""
        self._write(record.spec, record.evaluations)

    def _write(self, spec: ResolvedSpec, evaluations: Sequence[Evaluation]) -> None:
        while self.waiting:
            name = self.waiting.pop()
            with self._continue_on_error(name):
                self.open[name] = _open_target(name, self.out, spec)
                self._add(name, spec, RunFolder(self.out / spec.name).evaluations())
        for name in list(self.open):
            with self._continue_on_error(name):
                self._add(name, spec, evaluations)

    def _add(self, name: str, spec: ResolvedSpec, evaluations: Sequence[Evaluation]) -> None:
        """Write the points that a target does not have."""
        target = self.open[name]
        for evaluation in evaluations:
            step = evaluation.step
            if (name, step) not in self.done:
                points = flatten(spec, evaluation)
                if missing := {tag: value for tag, value in points.items() if not target.has(tag, step)}:
                    target.write(step, missing)
                self.done.add((name, step))

    @contextmanager
    def _continue_on_error(self, name: str) -> Iterator[None]:
        """Let an error of a target's library end its log, not the run."""
        try:
            yield
        except Exception as error:
            self.open.pop(name, None)
            reason = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".")
            print(f"note: --log {name} failed ({reason}). The run continues without it.", file=sys.stderr)


def _open_target(name: str, out: Path, spec: ResolvedSpec) -> Target:
    if name == "tensorboard":
        from fgmix.logs.tensorboard import TensorBoard

        return TensorBoard(out, spec)
    if name == "wandb":
        from fgmix.logs.wandb import WandB

        return WandB(out, spec)
    from fgmix.logs.mlflow import MLflow

    return MLflow(out, spec)


def flatten(spec: ResolvedSpec, evaluation: Evaluation) -> dict[str, float]:
    """List the numbers of an evaluation by tag.

    `raw/accuracy/photo/holdout` is model, metric, domain and part; `train/loss` a mean over training steps.
    """
    points = {f"train/{name}": value for name, value in evaluation.metrics.items()}
    kinds = {"accuracy": evaluation.accuracy, "loss": evaluation.loss, spec.metric: evaluation.scores}
    for kind, by_model in kinds.items():
        for model, scores in by_model.items():
            for domain, parts in scores.items():
                points |= {f"{model}/{kind}/{domain}/{part}": value for part, value in parts.items()}
    return points
