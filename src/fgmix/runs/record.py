"""Records of runs: the scores of each model at each evaluation. No torch: a laptop can rebuild every table."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from fgmix.errors import UserError, bad_value
from fgmix.files import checked_path, may_exist, read_json, write_json
from fgmix.metrics import Metrics
from fgmix.runs.spec import ResolvedSpec
from fgmix.seals import Damaged

if TYPE_CHECKING:
    from fgmix.algorithms import Algorithm
    from fgmix.data import DomainDataset

RECORD = "record.json"
SCHEMA = 2
LAST_STEP = 1_000_000_000  # the highest that a record may contain
GAIN = 0.005  # in validation accuracy over the last quarter of a run, from which on more steps may help
Model = Literal["raw", "swa", "swad"]
MODELS: tuple[Model, ...] = get_args(Model)
Which = Literal["best", "last"]  # weights at the step that validation selects, or after the last one
Scores = dict[str, dict[str, float]]  # domain → split ("train", "holdout") → value


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: accuracies and losses by domain and split, of the raw and of the averaged model.

    Args:
        step: optimisation steps done.
        accuracy: by model, domain and split.
        loss: cross-entropy, likewise.
        metrics: means of the algorithm's metrics over the steps since the previous evaluation.
        headline: values of the metric that the run selects by, by model, domain and split; empty if that is accuracy.
    """

    step: int
    accuracy: dict[str, Scores]
    loss: dict[str, Scores]
    metrics: dict[str, float]
    headline: dict[str, Scores] = field(default_factory=dict)

    @property
    def scores(self) -> dict[str, Scores]:
        """The values that selection uses: accuracy, or the run's other metric."""
        return self.headline or self.accuracy

    def has(self, model: Model) -> bool:
        """Whether a model was evaluated."""
        return model in self.accuracy

    def score(self, model: Model, domain: str, split: str) -> float:
        """One of `scores`."""
        return self.scores[model][domain][split]

    def validation(self, sources: tuple[str, ...], model: Model = "raw") -> float:
        """Training-domain validation: mean holdout accuracy (or other metric of the run) of the source domains."""
        return sum(self.score(model, name, "holdout") for name in sources) / len(sources)

    def as_dict(self) -> dict[str, Any]:
        found = {"step": self.step, "accuracy": self.accuracy, "loss": self.loss, "metrics": self.metrics}
        return {**found, "headline": self.headline} if self.headline else found


class CompactEvaluations(Sequence[Evaluation]):
    """Evaluations that are built on access; `validations` is fast, since selection uses those of thousands of runs."""

    def validations(self, sources: tuple[str, ...], model: Model) -> dict[int, float]:
        """Training-domain validation of the evaluations that have the model, by their index in the sequence."""
        raise NotImplementedError


def keeps(spec: ResolvedSpec, which: Which, model: Model) -> bool:
    """Whether a run keeps these weights of a model, by its option `keep`."""
    return spec.keep == "all" or (spec.keep == "best" and which == selected_weights(model))


def selected_weights(model: Model) -> Which:
    """Which weights of a run are the selected ones of a model.

    SWAD includes a selection of steps: its model is the one after the last step, under any selection rule.
    """
    return "last" if model == "swad" else "best"


def printed(label: str, model: Model) -> str:
    """A method's label in tables, with the kind of weight average, if any.

    >>> printed("CORAL", "raw"), printed("CORAL", "swa")
    ('CORAL', 'CORAL + SWA')
    """
    return label if model == "raw" else f"{label} + {model.upper()}"


@dataclass(frozen=True)
class RunRecord:
    """A finished run. It contains no times and no host names: repeating a run gives a bit-identical record.

    Args:
        spec: the resolved spec, with the name and the digest of the dataset.
        status: "done", or "diverged" if a loss was not finite.
        fgmix_version: the version that made it.
        domains: names of all domains, in the dataset's order.
        evaluations: in order of steps.
        diverged_at: the first step whose loss was not finite; None if there is none.
        label: the method's name in tables, declared in the method's own file; by default its registered name.
        domainbed_name: DomainBed's name of the method; None if DomainBed does not have it.
        notes: what was changed or left out when the data were read.
        classes: names of the classes; empty in older records, which do not store them.
        unseen: by model and test domain, the metrics of the selected weights on the domain's training part, as plain
            values (`metrics_of` parses them); empty in older records, which do not store them.
        weights_matched: how the tensors of a weights file were matched with the backbone's, "by name" or "by order";
            None without a file.
        gpu: name of the GPU that finished the run, versions of driver, CUDA and cuDNN; None without one.
        folder: where it was read from; not part of the record.
        origin: distinguishes runs of different folders in one report; not part of the record either.
    """

    spec: ResolvedSpec
    status: Literal["done", "diverged"]
    fgmix_version: str
    domains: tuple[str, ...]
    evaluations: Sequence[Evaluation]
    diverged_at: int | None = None
    label: str = ""
    domainbed_name: str | None = None
    notes: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    unseen: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    weights_matched: str | None = None
    gpu: dict[str, str] | None = None
    folder: Path | None = None
    origin: str = ""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.spec.algorithm)

    @property
    def method(self) -> str:
        """Key of its row in tables: the algorithm, with the arm and the origin if there are any."""
        return f"{self.spec.method} @ {self.origin}" if self.origin else self.spec.method

    @property
    def dataset(self) -> str:
        """The dataset's name, which does not depend on its location."""
        return self.spec.dataset_name

    @property
    def data_fingerprint(self) -> str:
        """Digest of the dataset."""
        return self.spec.data

    @cached_property  # a report uses it for thousands of runs, once for each model
    def sources(self) -> tuple[str, ...]:
        """Names of the source domains."""
        return tuple(name for name in self.domains if name not in self.spec.test_domains)

    def candidates(self, model: Model = "raw") -> tuple[Evaluation, ...]:
        """The evaluations of a model among which a selection rule selects; at least one."""
        self._require(model)
        found = tuple(e for e in self.evaluations if e.has(model))
        return found if selected_weights(model) == "best" else found[-1:]

    def _require(self, model: Model) -> None:
        """Raise an error if a model was not evaluated."""
        if not self.evaluations:
            raise UserError(
                f"Expected a run with evaluations. Found one that diverged at step {self.diverged_at}, before the "
                "first. Train it with a lower learning rate."
            )
        if model not in self.models:
            raise UserError(
                f"Expected a model that the run evaluated: {', '.join(self.models)}. Found {model!r}. "
                "Train with --averaging swa or swad to have an averaged one."
            )

    def validations(self, model: Model = "raw") -> dict[int, float]:
        """Training-domain validation of a model at each evaluation that has it, by the evaluation's index."""
        if isinstance(self.evaluations, CompactEvaluations):
            return self.evaluations.validations(self.sources, model)
        return {i: e.validation(self.sources, model) for i, e in enumerate(self.evaluations) if e.has(model)}

    def best(self, model: Model = "raw") -> tuple[Evaluation, float]:
        """The evaluation that training-domain validation selects, the earliest of equals, and its validation value."""
        self._require(model)
        values = self.validations(model)
        best = max(values, key=values.__getitem__) if selected_weights(model) == "best" else max(values)
        return self.evaluations[best], values[best]

    def selected(self, model: Model = "raw") -> Evaluation:
        """The evaluation that training-domain validation selects; the earliest of equals."""
        return self.best(model)[0]

    @property
    def still_improving(self) -> bool:
        """Whether validation accuracy was still rising when the run ended, so that more steps may help.

        It was if the last evaluation (of the averaged model, if there is one) is better by at least `GAIN` than all of
        the first three quarters of the steps, and better than all others.
        """
        model = self.models[-1] if self.models else "raw"
        values = {self.evaluations[i].step: value for i, value in self.validations(model).items()}
        early = [value for step, value in values.items() if step <= 0.75 * self.spec.steps]
        last = values.pop(self.spec.steps, 0.0)
        return bool(early) and last >= max(early) + GAIN and last > max(values.values())

    def test_accuracy(self, model: Model = "raw") -> float:
        """Accuracy on the test domain at the selected evaluation: the number that DomainBed reports.

        It is measured on the training part of the domain, which no selection rule uses. With several test domains it
        is their mean; `record.accuracy` has each of them.
        """
        tests = self.spec.test_domains
        if not tests:
            raise UserError("Expected a run with a test domain. Found one that was trained on all domains.")
        scores = self.selected(model).accuracy[model]
        return sum(scores[name]["train"] for name in tests) / len(tests)

    def metrics_of(self, model: Model = "raw") -> dict[str, Metrics]:
        """All metrics on each test domain: of the selected weights, on the part that is reported."""
        return {name: Metrics.from_dict(found) for name, found in self.unseen.get(model, {}).items()}

    @cached_property  # as above
    def models(self) -> tuple[Model, ...]:
        """The models that were evaluated: the raw one, and the average if there is one."""
        last = self.evaluations[-1] if self.evaluations else None
        return tuple(model for model in MODELS if last and last.has(model))

    @property
    def accuracy(self) -> Scores:
        """Accuracy by domain and split of the selected raw model: `record.accuracy["sketch"]["holdout"]`."""
        return self.selected().accuracy["raw"]

    def open(
        self, model: Model = "raw", *, dataset: DomainDataset | str | None = None, device: str = "cpu"
    ) -> Algorithm:
        """The trained algorithm in evaluation mode, with the weights that training-domain validation selects.

        Args:
            model: "raw", or the averaged "swa" or "swad".
            dataset: the dataset, or its new location; None for its location during the run.
            device: as in `train`.
        """
        from fgmix.runs.folder import RunFolder
        from fgmix.runs.opening import open_run

        if self.folder is None:
            raise UserError(
                "Expected a record of a run's folder, which holds the weights. Found one without a folder. Read it "
                "with `read_record(folder)`."
            )
        self.candidates(model)  # raises an error that lists the evaluated models
        weights = RunFolder(self.folder).weights(selected_weights(model), model)
        if not weights.exists():
            raise UserError(
                f"Expected weights at {weights}. Found none: they were not kept. Delete {self.folder} and train the "
                "run again with --keep all."
            )
        return open_run(self.folder, dataset=dataset, device=device, progress=False).at(weights)

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "fgmix": self.fgmix_version,
            "status": self.status,
            "diverged_at": self.diverged_at,
            "label": self.label,
            "domainbed_name": self.domainbed_name,
            "spec": self.spec.as_dict(),
            "domains": list(self.domains),
            "classes": list(self.classes),
            "notes": list(self.notes),
            "weights_matched": self.weights_matched,
            "gpu": self.gpu,
            "unseen": self.unseen,
            "evaluations": [evaluation.as_dict() for evaluation in self.evaluations],
        }

    def write(self, path: Path) -> None:
        write_json(path, self.as_dict())


def read_record(path: str | Path) -> RunRecord:
    """The record in a run's folder (or at a record.json)."""
    path = checked_path("path", path)
    file = path / RECORD if os.path.isdir(path) else path
    if not may_exist(file):
        raise UserError(f"Expected a finished run at {path}. Found no {RECORD}. Name a run's own folder.")
    try:
        content = read_json(file)
    except Damaged as error:
        if file.name != RECORD:
            raise UserError(f"Expected a finished run at {path}. Found another file. Name a run's folder.") from error
        raise Damaged(f"{error} Delete it and train the run again.") from error
    return as_record(content, str(file), file.parent)


def as_record(
    content: dict[str, Any],
    place: str,
    folder: Path | None = None,
    evaluations: Sequence[Evaluation] | None = None,
) -> RunRecord:
    """The inverse of `RunRecord.as_dict`.

    Args:
        content: the plain values.
        place: where they were read, for errors.
        folder: the run's; None for a record without one.
        evaluations: those of the record, checked by the caller; None to build and check those of the content.
    """
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        raise UserError(
            f"Expected a record of schema {SCHEMA} at {place}. Found schema {schema}. "
            "Read it with the fgmix version that made it."
        )
    try:
        made = evaluations or tuple(Evaluation(**evaluation) for evaluation in content["evaluations"])
        record = _record(content, folder, made)
        check_record(record, evaluations is None)
        return record
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"Expected a run's record at {place}. Found one that is not whole ({type(error).__name__}: {error}). "
            "Delete it and train the run again."
        ) from error


def _record(content: dict[str, Any], folder: Path | None, evaluations: Sequence[Evaluation]) -> RunRecord:
    return RunRecord(
        spec=ResolvedSpec.from_dict(content["spec"]),
        status=content["status"],
        fgmix_version=content["fgmix"],
        domains=tuple(content["domains"]),
        notes=tuple(content["notes"]),
        weights_matched=content.get("weights_matched"),
        gpu=content.get("gpu"),
        classes=tuple(content.get("classes", ())),
        unseen=content.get("unseen", {}),
        evaluations=evaluations,
        diverged_at=content["diverged_at"],
        label=content["label"],
        domainbed_name=content["domainbed_name"],
        folder=folder,
    )


def check_record(record: RunRecord, with_evaluations: bool = True) -> None:
    """Raise an error for values that no run produces: a record may have been edited, or made by other software."""
    names = record.domains
    if not names or not all(isinstance(name, str) for name in names) or not {*record.spec.test_domains} <= {*names}:
        raise bad_value("domains", "the names of all domains, those held out among them", names)
    if record.status not in ("done", "diverged"):
        raise bad_value("status", "done or diverged", record.status)
    if record.status == "done" and not record.evaluations:
        raise bad_value("evaluations", "those of a finished run", [])
    for text in (record.label, record.fgmix_version, *record.notes, *record.classes):
        if not isinstance(text, str):
            raise bad_value("label, fgmix, notes and classes", "texts", text)
    for model in record.unseen:
        record.metrics_of(model)  # type: ignore[arg-type]  # an error here means an invalid record
    for evaluation in record.evaluations if with_evaluations else ():
        check_evaluation(evaluation, record.domains, record.spec.test_domains)


def check_evaluation(evaluation: Evaluation, names: tuple[str, ...], tests: tuple[str, ...]) -> None:
    """Raise an error for values that no evaluation of a run with these domains and test domains produces."""
    if type(evaluation.step) is not int or not 0 <= evaluation.step <= LAST_STEP:
        raise bad_value("step", f"an integer from 0 to {LAST_STEP:,}", evaluation.step)
    if not evaluation.accuracy.keys() <= {*MODELS}:
        raise bad_value("accuracy", f"of the models {', '.join(MODELS)}", [*evaluation.accuracy])
    for model, scores in evaluation.accuracy.items():
        for name in names:
            parts = scores[name]
            needed = (parts["holdout"], parts["train"]) if name in tests else (parts["holdout"],)
            headline = evaluation.scores[model][name].values()
            if not all(0 <= value <= 1 for value in (*needed, *parts.values(), *headline)):
                raise bad_value(f"accuracy of {model} on {name}", "between 0 and 1", parts)
    for name, parts in evaluation.loss.get("raw", {}).items():
        if not all(0 <= value < math.inf for value in parts.values()):
            raise bad_value(f"loss on {name}", "finite", parts)
    for name, value in evaluation.metrics.items():
        if type(value) not in (int, float):
            raise bad_value(f"metric {name}", "a number", value)
