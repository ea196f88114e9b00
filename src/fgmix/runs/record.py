"""Records of runs: what was measured, at which step, of which model. No torch: a laptop can rebuild every table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from fgmix.errors import UserError
from fgmix.files import read_json, write_json
from fgmix.runs.spec import RunSpec

SCHEMA = 1
Model = Literal["raw", "swa", "swad"]
Scores = dict[str, dict[str, float]]  # domain → split ("train", "holdout") → value


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: accuracies and losses by domain and split, of the raw and of the averaged model.

    Args:
        step: optimisation steps done.
        accuracy: by model, domain and split.
        loss: cross-entropy, likewise.
        metrics: means of the algorithm's metrics over the steps since the evaluation before.
    """

    step: int
    accuracy: dict[str, Scores]
    loss: dict[str, Scores]
    metrics: dict[str, float]

    def validation(self, sources: tuple[str, ...], model: Model = "raw") -> float:
        """Training-domain validation: mean holdout accuracy of the source domains."""
        return sum(self.accuracy[model][name]["holdout"] for name in sources) / len(sources)

    def as_dict(self) -> dict[str, Any]:
        return {"step": self.step, "accuracy": self.accuracy, "loss": self.loss, "metrics": self.metrics}


@dataclass(frozen=True)
class RunRecord:
    """A finished run. It holds no time and no place: equal runs have equal records, bit for bit.

    Args:
        spec: the resolved spec.
        status: "done", or "diverged" when a loss was not finite.
        fgmix_version: the version that made it.
        dataset: the dataset's name, wherever it lay.
        data_fingerprint: digest of the dataset.
        domains: names of all of its domains, in its order.
        evaluations: in order of steps.
        diverged_at: the first step whose loss was not finite.
        folder: where it was read from; not part of the record.
    """

    spec: RunSpec
    status: Literal["done", "diverged"]
    fgmix_version: str
    dataset: str
    data_fingerprint: str
    domains: tuple[str, ...]
    evaluations: tuple[Evaluation, ...]
    diverged_at: int | None = None
    folder: Path | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the source domains."""
        return tuple(name for name in self.domains if name not in self.spec.test_domains)

    def best(self, model: Model = "raw") -> Evaluation:
        """The evaluation that training-domain validation selects; the earliest of equals.

        SWAD selects by itself, within its average: its model is that after the last step.
        """
        if not self.evaluations:
            raise UserError(
                f"Expected a run with evaluations. This one diverged at step {self.diverged_at} before any."
            )
        if model == "swad":
            return self.evaluations[-1]
        return max(self.evaluations, key=lambda e: (e.validation(self.sources, model), -e.step))

    @property
    def models(self) -> tuple[Model, ...]:
        """The models that were evaluated: the raw one, and the average if there is one."""
        found = self.evaluations[0].accuracy if self.evaluations else {}
        return tuple(model for model in get_args(Model) if model in found)

    @property
    def accuracy(self) -> Scores:
        """Accuracy by domain and split of the selected raw model: `record.accuracy["sketch"]["holdout"]`."""
        return self.best().accuracy["raw"]

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "fgmix": self.fgmix_version,
            "status": self.status,
            "diverged_at": self.diverged_at,
            "spec": self.spec.as_dict(),
            "dataset": self.dataset,
            "data": self.data_fingerprint,
            "domains": list(self.domains),
            "evaluations": [evaluation.as_dict() for evaluation in self.evaluations],
        }

    def write(self, path: Path) -> None:
        write_json(path, self.as_dict())


def read_record(path: Path) -> RunRecord:
    """The record in a run's folder (or at a record.json)."""
    file = path / "record.json" if path.is_dir() else path
    content = read_json(file)
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        raise UserError(
            f"Expected a record of schema {SCHEMA} at {file}. Found schema {schema}. "
            "Read it with the fgmix version that made it."
        )
    try:
        return _record(content, file.parent)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"Expected a run's record at {file}. Found one that is not whole ({type(error).__name__}: {error}). "
            "Delete it, and the run goes on when it is started again."
        ) from error


def _record(content: dict[str, Any], folder: Path) -> RunRecord:
    return RunRecord(
        spec=RunSpec.from_dict(content["spec"]),
        status=content["status"],
        fgmix_version=content["fgmix"],
        dataset=content["dataset"],
        data_fingerprint=content["data"],
        domains=tuple(content["domains"]),
        evaluations=tuple(Evaluation(**evaluation) for evaluation in content["evaluations"]),
        diverged_at=content["diverged_at"],
        folder=folder,
    )
