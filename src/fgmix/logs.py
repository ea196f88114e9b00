"""Follow runs in TensorBoard, Weights & Biases or MLflow: `fgmix train --log tensorboard`, `fgmix sweep --log mlflow`.

The evaluations of `metrics.jsonl` are logged as they are made. A log is not part of a run's record or name, and an
error of a log does not stop the run. For another target, pass your own `on_evaluation` to `fgmix.train`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from fgmix.errors import require_package, unknown
from fgmix.records.evaluations import Evaluation
from fgmix.records.schema import ResolvedSpec, RunRecord, to_plain
from fgmix.records.store import RunFolder
from fgmix.terminal import print_notes

VARIABLES = ("MLFLOW_", "WANDB_")  # beginnings of the libraries' own environment variables
TAG = "fgmix.run"  # in MLflow, the name of the fgmix run, to find it again
PARAMETERS = ("algorithm", "dataset_name", "backbone", "steps", "batch_size", "seed", "trial_seed", "hparams_seed")


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """Check the names of targets and drop duplicates; a target whose library is not installed raises an error, too."""
    for name in names:
        if name not in TARGETS:
            raise unknown("target of --log", name, TARGETS)
        require_package(name, name)
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
        self.targets: dict[str, Target | None] = dict.fromkeys(names)  # None until the first evaluation

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        for name, target in [*self.targets.items()]:
            with self._continue_on_error(name):
                if target:
                    target.close()

    def __call__(self, spec: ResolvedSpec, evaluation: Evaluation) -> None:
        """Log an evaluation; the first call also logs those from before an interruption."""
        self._write(spec, [evaluation])

    def complete(self, record: RunRecord) -> None:
        """Log the missing evaluations of a finished run."""
        self._write(record.spec, record.evaluations)

    def _write(self, spec: ResolvedSpec, evaluations: Sequence[Evaluation]) -> None:
        for name, known in [*self.targets.items()]:
            with self._continue_on_error(name):
                target = self.targets[name] = known or TARGETS[name](self.out, spec)
                earlier = [] if known else RunFolder(self.out / spec.name).evaluations()
                for evaluation in (*earlier, *evaluations):
                    if evaluation.step not in target.steps:
                        target.write(evaluation.step, flatten(spec, evaluation))
                        target.steps.add(evaluation.step)

    @contextmanager
    def _continue_on_error(self, name: str) -> Iterator[None]:
        """Let an error of a target's library end its log, not the run."""
        try:
            yield
        except Exception as error:
            self.targets.pop(name, None)
            reason = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".")
            print_notes(f"--log {name} failed ({reason}). The run continues without it.")


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


class Target(Protocol):
    """A log of one run, whose library is imported when the log is opened."""

    steps: set[int]  # of the evaluations that are logged, before an interruption too

    def __init__(self, out: Path, spec: ResolvedSpec) -> None: ...

    def write(self, step: int, points: dict[str, float]) -> None:
        """Add the points of an evaluation, by tag."""
        ...

    def close(self) -> None: ...


class TensorBoard:
    """TensorBoard's event files: `tensorboard --logdir OUT/tensorboard` shows a curve per run."""

    def __init__(self, out: Path, spec: ResolvedSpec) -> None:
        from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator
        from torch.utils.tensorboard import SummaryWriter

        folder = out / "tensorboard" / spec.name
        before = EventAccumulator(str(folder), size_guidance={SCALARS: 0})  # 0: all of them
        if folder.exists():
            before.Reload()
        tags = before.Tags()[SCALARS]
        self.steps = {event.step for tag in tags for event in before.Scalars(tag)}
        self.writer = SummaryWriter(str(folder))

    def write(self, step: int, points: dict[str, float]) -> None:
        for tag, value in points.items():
            self.writer.add_scalar(tag, value, step)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class WandB:
    """A run in the project `fgmix` of Weights & Biases, with the digest of the spec as id.

    The account, the project (WANDB_PROJECT) and whether anything is sent (WANDB_MODE=offline) are wandb's own settings.
    """

    def __init__(self, out: Path, spec: ResolvedSpec) -> None:
        import wandb

        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fgmix"),
            id=spec.name.rpartition("-")[2],  # the digest: an id may not contain all characters of a domain's name
            name=spec.name,
            group=spec.dataset_name,
            config=to_plain(spec),
            dir=str(out),
            resume="allow",
        )
        # A resumed run starts after its last logged step; an offline run starts at 0 and is logged as a whole.
        self.steps = {*range(self.run.starting_step)}

    def write(self, step: int, points: dict[str, float]) -> None:
        self.run.log(points, step=step, commit=True)

    def close(self) -> None:
        self.run.finish()


class MLflow:
    """A run in the experiment `fgmix` of MLflow; main fields and settings of the spec become parameters.

    The address of the tracking server (MLFLOW_TRACKING_URI) and the experiment (MLFLOW_EXPERIMENT_NAME) are MLflow's
    own settings; without an address, MLflow's runs are in the folder `mlruns` in the folder of runs: a file store, in
    which the processes of a sweep do not block each other.
    """

    def __init__(self, out: Path, spec: ResolvedSpec) -> None:
        from mlflow import MlflowClient

        address = os.environ.get("MLFLOW_TRACKING_URI")
        if not address:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 requires it for file stores
            address = (out / "mlruns").absolute().as_uri()
        self.client = MlflowClient(address)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "fgmix")
        existing = self.client.get_experiment_by_name(name)
        experiment = str(existing.experiment_id if existing else self.client.create_experiment(name))
        earlier = self.client.search_runs([experiment], f"tags.`{TAG}` = '{spec.name}'", max_results=1)
        run = earlier[0] if earlier else self._start(experiment, spec)
        self.id = run.info.run_id
        history = (self.client.get_metric_history(self.id, key) for key in run.data.metrics)
        self.steps = {each.step for metric in history for each in metric}

    def _start(self, experiment: str, spec: ResolvedSpec) -> Any:
        from mlflow.entities import Param

        run = self.client.create_run(experiment, tags={TAG: spec.name}, run_name=spec.name)
        fields = {name: getattr(spec, name) for name in PARAMETERS} | {"test_domains": "+".join(spec.test_domains)}
        parameters = [Param(self._clean(name), str(value)) for name, value in {**fields, **spec.settings}.items()]
        self.client.log_batch(run.info.run_id, params=parameters)
        return run

    @staticmethod
    def _clean(tag: str) -> str:
        """Replace the characters of a tag that MLflow rejects, such as the % in `-90%`."""
        return re.sub(r"[^\w./: -]", "_", tag)

    def write(self, step: int, points: dict[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self.client.log_batch(self.id, [Metric(self._clean(tag), value, now, step) for tag, value in points.items()])

    def close(self) -> None:
        self.client.set_terminated(self.id)


TARGETS: dict[str, type[Target]] = {"mlflow": MLflow, "tensorboard": TensorBoard, "wandb": WandB}  # each also an extra
