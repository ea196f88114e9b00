"""Specs and records of runs: everything that can change a result, and the result. No torch.

`RunSpec` is the user's, with None for defaults that depend on the dataset and the protocol. `resolve` (in
training/resolve.py) turns it into a `ResolvedSpec`, in which all defaults are filled in, and which defines the identity
and the name of the run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from functools import cache, cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from fgmix.errors import UserError, bad_value, unknown
from fgmix.fields import Field, check_fields, declare, fields_of
from fgmix.records.digests import Damaged
from fgmix.records.files import checked_path, may_exist, read_json, write_json
from fgmix.records.metrics import Metric, Metrics

if TYPE_CHECKING:
    from fgmix.algorithms import Algorithm
    from fgmix.data import DomainDataset

Protocol = Literal["clean", "domainbed-2020", "domainbed-2024"]
Averaging = Literal["swa", "swad", "none"]
Head = Literal["linear", "mlp"]
Keep = Literal["all", "best", "none"]
ClassWeight = Literal["none", "balanced"]
Precision = Literal["fp32", "bf16", "fp16"]
LONGEST_ARM = 80  # characters
LONGEST_NAME = 200  # bytes of the readable part of a run's name


def option(
    default: Any = MISSING,
    *,
    help: str,
    group: str,
    ge: float | None = None,
    gt: float | None = None,
    lt: float | None = None,
    le: float | None = None,
    place: bool = False,
    envvar: str | None = None,
) -> Any:
    """An option of a run: its flag, its checks and its entry in the record follow from this declaration.

    Args:
        default: its default; None if that depends on the dataset and the protocol.
        help: one line.
        group: heading under which help texts list it.
        ge: values should be at least this.
        gt: … greater than this.
        lt: … less than this.
        le: … at most this: more is a mistake that would otherwise show only after days or when memory is full.
        place: whether it is a path, or says what is saved and how often, which does not change the result: such an
            option is not part of the run's identity.
        envvar: environment variable that gives the flag's default.
    """
    return declare(default, help=help, ge=ge, gt=gt, lt=lt, le=le, group=group, place=place, envvar=envvar)


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """A run as a user describes it; `fgmix train --help` lists the options by group.

    Args:
        dataset: registered name, folder `domain/class/image`, CSV manifest or .npz file.
        algorithm: registered name.
        test_domains: names of the domains held out: one, two for leave-one-domain-out selection, none for a model
            that is trained on all domains.
        settings: fields of the algorithm's Config (lr, weight_decay and its own).

    The other fields are declared below, each with its help.

    Example:
        >>> RunSpec(dataset="digits", algorithm="erm", test_domains="photo", steps=100).test_domains
        ('photo',)
    """

    dataset: str = option(help="registered name, folder domain/class/image, CSV manifest or .npz file", group="Data")
    algorithm: str = option(help="method; see `fgmix list algorithms`", group="Method")
    test_domains: tuple[str, ...] = ()
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    arm: str = option(
        "", help="label of these settings: tables show each arm of a method in a row of its own", group="Method"
    )

    data_root: str = option("", help="folder that contains the datasets", group="Data", place=True, envvar="FGMIX_DATA")
    image_size: int = option(
        0, help="side of the square input image; 0 for the dataset's default", group="Data", ge=0, le=4096
    )
    holdout_fraction: float = option(
        0.2, help="fraction of each domain held out for validation", group="Data", gt=0, lt=1
    )
    trial_seed: int = option(0, help="seed of the split of every domain", group="Data", ge=0)
    class_weight: ClassWeight = option(
        "none", help="balanced: in training, all classes of a domain are drawn equally often", group="Data"
    )
    classes_per_batch: int = option(
        0, help="number of classes per batch (class-aware sampling); 0 samples uniformly", group="Data", ge=0
    )
    skip_unreadable: bool = option(False, help="leave out images that cannot be decoded", group="Data")
    standardize: bool | None = option(
        None, help="scale features to mean 0 and variance 1 over the training parts; default for features", group="Data"
    )

    backbone: str | None = option(
        None,
        help="see `fgmix list backbones`; random weights unless it has a tag or --pretrained or --weights is given",
        group="Network",
    )
    pretrained: bool | None = option(None, help="start from published ImageNet weights", group="Network")
    weights: str = option("", help="local weights file for the backbone", group="Network", place=True)
    head: Head = option("linear", help="classifier on top of the features", group="Network")
    dropout: float = option(0.0, help="dropout on the features", group="Network", ge=0, lt=1)
    freeze_bn: bool | None = option(None, help="keep batch-norm layers in evaluation mode", group="Network")
    freeze: int = option(
        0, help="first sections of the backbone (stages, quarters of a transformer) not to train", group="Network", ge=0
    )
    warmup_head: int = option(
        0, help="steps that train the classifier alone before the first step", group="Network", ge=0, le=1_000_000
    )
    channels_last: bool | None = option(None, help="channels-last memory layout of images", group="Network")
    frozen: bool = option(
        False, help="train a small network on features of the pre-trained backbone, computed once", group="Network"
    )
    views: int = option(
        0,
        help="with --frozen: augmented views of each image to train on besides the image",
        group="Network",
        ge=0,
        le=99,
    )

    steps: int | None = option(None, help="number of optimisation steps", group="Training", ge=1, le=10_000_000)
    batch_size: int | None = option(None, help="samples per source domain and step", group="Training", ge=1, le=100_000)
    seed: int = option(0, help="seed of initial weights, batches, augmentation and the method", group="Training", ge=0)
    hparams_seed: int = option(
        0, help="number of the hyper-parameter sample in a search (a label)", group="Training", ge=0
    )
    precision: Precision = option("fp32", help="autocast to a half precision; fp16 with loss scaling", group="Training")
    bf16: bool = option(False, help="short for --precision bf16", group="Training")
    compile: bool = option(False, help="compile the featurizer with torch.compile", group="Training")
    deterministic: bool = option(False, help="only deterministic operations, also on a GPU", group="Training")
    checkpoint_every: int = option(
        0, help="steps between checkpoints; 0 for one at every evaluation", group="Training", ge=0, place=True
    )
    checkpoint_minutes: float = option(
        5.0, help="minutes between checkpoints, besides those by step; 0 for none", group="Training", ge=0, place=True
    )

    keep: Keep = option(
        "all",
        help="weights to keep: all, the selected model's alone, or none",
        group="Training",
        place=True,
    )

    protocol: Protocol = option("clean", help="evaluation protocol; see docs/protocol.md", group="Evaluation")
    eval_every: int | None = option(None, help="steps between evaluations", group="Evaluation", ge=1)
    averaging: Averaging = option("swa", help="weight averaging evaluated beside the raw model", group="Evaluation")
    averaging_start: int = option(100, help="first step that enters the average", group="Evaluation", ge=0)
    metric: Metric = option("accuracy", help="metric that is reported first and selects the model", group="Evaluation")
    evaluate_train: bool = option(
        False, help="also evaluate the training parts of the source domains", group="Evaluation"
    )
    snapshots: int = option(
        0, help="number of weight snapshots to keep, for surface plots", group="Evaluation", ge=0, le=10_000
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "test_domains", _domain_names(self.test_domains))
        if not isinstance(self.settings, Mapping):
            raise bad_value("settings", "a dictionary of the method's settings", self.settings)
        if "steps" in self.settings:
            raise UserError("The number of steps is given as `steps`. Found it among the settings. Drop it there.")
        object.__setattr__(self, "settings", {str(name): value for name, value in self.settings.items()})
        check_fields(self, RunSpec)
        if self.arm and not (self.arm.isprintable() and self.arm == self.arm.strip() and len(self.arm) <= LONGEST_ARM):
            raise bad_value(
                "arm", f"a label for tables: printable, not blank, {LONGEST_ARM} characters at most", self.arm
            )

    @property
    def method(self) -> str:
        """Key of the run's row in tables: its algorithm, and its arm if it has one.

        >>> RunSpec(dataset="digits", algorithm="fgmix", arm="γ = 10").method
        'fgmix (γ = 10)'
        """
        return f"{self.algorithm} ({self.arm})" if self.arm else self.algorithm

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The spec that `as_dict` wrote."""
        if not isinstance(values, Mapping):
            raise bad_value("values", "a dictionary of a run's options", values)
        known = cls.__dataclass_fields__
        for name in values:
            if name not in known:
                raise unknown("option of a run", name, known)
        required: tuple[str, ...] = _required(cls)  # type: ignore[arg-type]  # a class is hashable
        missing = [name for name in required if name not in values]
        if missing:
            needed = ", ".join(required)
            raise UserError(f"Expected the options {needed}. Found no {', '.join(missing)}. Add what is missing.")
        # Not `cls(**values)`: that sets fields one by one, past the frozen class, for each of thousands of records.
        spec = cls.__new__(cls)
        vars(spec).update({**_defaults(cls), **values})  # type: ignore[arg-type]
        spec.__post_init__()
        return spec


@dataclass(frozen=True, kw_only=True)
class ResolvedSpec(RunSpec):
    """A run with all defaults filled in, made by `resolve` and stored in records.

    Args:
        dataset_name: the dataset's name, which does not depend on its location.
        data: fingerprint of the dataset.
        input_shape: (c, h, w) of images or (f,) of features, as the network sees them.
        weights_digest: digest of the weights file, the user's or a package's; empty without one.
        mean: per channel, subtracted from images in [0, 1]; empty if inputs are not normalised.
        std: per channel, by which they are then divided.
        interpolation: how images are resized; empty if they are not.
        code_size: number of features of a frozen backbone; 0 if the backbone is trained.
        tail: standard deviations beyond which standardised features are damped; 0 if they are not.
    """

    standardize: bool = False  # for records made before this option
    backbone: str
    pretrained: bool
    freeze_bn: bool
    channels_last: bool
    steps: int
    batch_size: int
    eval_every: int
    dataset_name: str
    data: str
    input_shape: tuple[int, ...]
    weights_digest: str = ""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    interpolation: str = ""
    code_size: int = 0
    tail: float = 0.0  # for records made before it

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("input_shape", "mean", "std"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for text in (self.dataset_name, self.data, self.weights_digest, self.interpolation):
            if not isinstance(text, str):
                raise bad_value("dataset_name, data, weights_digest and interpolation", "texts", text)
        if type(self.code_size) is not int:
            raise bad_value("code_size", "an integer", self.code_size)
        if None in vars(self).values():
            open_field = next(name for name, value in vars(self).items() if value is None)
            raise bad_value(open_field, "decided in a resolved spec", None)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; without a `tail` of 0, so that names of runs made before it do not change."""
        values = super().as_dict()
        return values if self.tail else {name: value for name, value in values.items() if name != "tail"}

    @property
    def identity(self) -> dict[str, Any]:
        """What identifies the run: specs with equal identities are the same run.

        Data and weights are identified by their digests, not by their paths.
        """
        places = {name for name, field in fields_of(RunSpec).items() if field.metadata["place"]}
        content = {name: value for name, value in self.as_dict().items() if name not in places}
        return {**content, "dataset": self.dataset_name}

    @property
    def name(self) -> str:
        """Name of the run's folder, a readable part and a digest: `digits-erm-photo-1f3a…`."""
        digest = hashlib.blake2b(json.dumps(self.identity, sort_keys=True).encode(), digest_size=6).hexdigest()
        readable = [self.dataset_name, self.algorithm, "+".join(self.test_domains) or "all"]
        front = "-".join(re.sub(r"[^\w+.%-]+", "_", part) for part in readable)
        # A folder's name has 255 bytes at most. If many or long domains exceed that, the digest distinguishes runs.
        return f"{front.encode()[:LONGEST_NAME].decode(errors='ignore')}-{digest}"


@cache  # a report reads thousands of specs
def _required(cls: type) -> tuple[str, ...]:
    """The fields without a default."""
    fields = dataclasses.fields(cls)
    return tuple(f.name for f in fields if f.default is MISSING and f.default_factory is MISSING)


@cache
def _defaults(cls: type) -> dict[str, Any]:
    """The defaults of the fields that have one."""
    fields = [f for f in dataclasses.fields(cls) if f.name not in _required(cls)]
    return {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields}


def options(omit: Iterable[str] = ()) -> dict[str, Field]:
    """The declared options of a run by name, except those in `omit`."""
    return {name: field for name, field in fields_of(RunSpec).items() if name not in set(omit)}


def parse_options(texts: Mapping[str, str], omit: Iterable[str] = ()) -> dict[str, Any]:
    """Options from texts, such as {"steps": "100"} of `--with steps=100`.

    >>> parse_options({"steps": "100", "backbone": "resnet18", "bf16": "true"})
    {'steps': 100, 'backbone': 'resnet18', 'bf16': True}
    """
    known = options(omit)
    for name in texts:
        if name not in known:
            raise unknown("option of a run", name, known)
    return {name: known[name].parsed(text) for name, text in texts.items()}


def command(spec: RunSpec, out: str = "runs") -> str:
    """The command that repeats a run: the same options, hence the same run.

    >>> spec = RunSpec(dataset="digits", algorithm="erm", test_domains="photo", steps=10, settings={"lr": 0.01})
    >>> command(spec)
    'fgmix train --dataset digits --algorithm erm --test-domain photo --steps 10 --set lr=0.01 --out runs'
    """
    words = ["fgmix", "train", "--dataset", spec.dataset, "--algorithm", spec.algorithm]
    for domain in spec.test_domains:
        words += ["--test-domain", domain]
    for name, option_ in options(omit=("dataset", "algorithm")).items():
        value = getattr(spec, name)
        if value != option_.default:
            words += _flag(name, value)
    for name, value in spec.settings.items():
        words += ["--set", f"{name}={str(value).lower() if value is None or isinstance(value, bool) else value}"]
    return shlex.join([*words, "--out", out])


def flag_of(name: str) -> str:
    """holdout_fraction → --holdout-fraction."""
    return "--" + name.replace("_", "-")


def _flag(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag_of(name) if value else flag_of(f"no_{name}")]
    return [flag_of(name), str(value)]


def _domain_names(found: Any) -> tuple[str, ...]:
    """One name or several as a tuple of names."""
    names = (found,) if isinstance(found, str) else found
    if isinstance(names, PathLike | Mapping) or not isinstance(names, Iterable):
        raise bad_value("test_domains", "a name or a sequence of names, such as ('photo',)", found)
    names = tuple(names)
    for name in names:
        if not isinstance(name, str):
            hint = f"Domains have names; a domain numbered {name} in an array is {str(name)!r}."
            raise bad_value("test_domains", "names of domains", found, hint)
    return names


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
        from fgmix.records.store import RunFolder
        from fgmix.training.open_run import open_run

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
