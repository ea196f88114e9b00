"""The schema of runs: `RunSpec` (what a user asks for), `ResolvedSpec` (every default filled in) and `RunRecord`.

Everything that can change the result of a run is a field of its spec, declared once: type, bounds, default, help and
group. Flags, checks and records follow from the declaration. `resolve` (training/resolve.py) turns a `RunSpec` into a
`ResolvedSpec`, which defines the identity and the name of the run. A new field of a record is one line here.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

import msgspec
from msgspec import Meta, Struct, StructMeta, field
from msgspec.structs import force_setattr

from fgmix.errors import UserError, bad_value
from fgmix.records.evaluations import Evaluation, Evaluations, Metric, Metrics, Model, Shares
from fgmix.records.options import About, Option, check_names, check_options, options_of
from fgmix.records.pretraining import name_pretraining

GAIN = 0.005  # in validation accuracy over the last quarter of a run, from which on more steps may help
LONGEST_ARM = 80  # characters
LONGEST_NAME = 200  # bytes of the readable part of a run's name
# Settings of the optimiser of every method besides rate and weight decay (docs/optimiser.md), with their defaults,
# which specs leave out: runs from before there were such settings keep their names.
OPTIMIZER: Mapping[str, Any] = {
    "optimizer": "adam",
    "schedule": "constant",
    "lr_warmup": 0,
    "decay_on": "all",
    "layer_decay": 1.0,
    "head_lr": None,
    "clip_norm": None,
    "accumulate": 1,
}
LORA = ("lora", "lora_targets", "lora_alpha", "lora_dropout")  # options of adapters

Protocol = Literal["clean", "domainbed-2020", "domainbed-2024", "clip-2024"]
Averaging = Literal["swa", "swad", "none"]
Head = Literal["linear", "mlp", "text", "text-frozen"]
Templates = Literal["photo", "name", "depictions"]
Keep = Literal["all", "best", "none"]
ClassWeight = Literal["none", "balanced"]
Precision = Literal["fp32", "bf16"]
Which = Literal["best", "last"]  # weights at the step that validation selects, or after the last one

S = TypeVar("S", bound="RunSpec")

Unseen = dict[Model, dict[str, Metrics]]  # by model and test domain
if TYPE_CHECKING:
    Packed = Evaluations  # what `RunRecord.__post_init__` leaves
else:
    Packed = Sequence[Evaluation]  # what JSON has

# Upper bounds: more is a mistake that would otherwise show only after days, or when memory is full.
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Steps = Annotated[int, Meta(ge=1, le=10_000_000)]
BatchSize = Annotated[int, Meta(ge=1, le=100_000)]
Pixels = Annotated[int, Meta(ge=0, le=4096)]
Warmup = Annotated[int, Meta(ge=0, le=1_000_000)]
Views = Annotated[int, Meta(ge=0, le=99)]
Snapshots = Annotated[int, Meta(ge=0, le=10_000)]
Fraction = Annotated[float, Meta(gt=0, lt=1)]
Dropout = Annotated[float, Meta(ge=0, lt=1)]
Rank = Annotated[int, Meta(ge=0, le=4096)]
Scale = Annotated[float, Meta(ge=0, le=1e6)]
Minutes = Annotated[float, Meta(ge=0)]
Mean = Annotated[float, Meta(gt=-1e6, lt=1e6)]
Deviation = Annotated[float, Meta(gt=0, lt=1e6)]


class _ChecksNames(StructMeta):
    """Refuses unknown and missing options of a spec that is made in Python, with the closest name."""

    def __call__(cls, *values: Any, **options: Any) -> Any:
        if values:
            raise UserError(f"Expected options of a run by name. Found {len(values)} without: dataset=…, algorithm=….")
        try:
            return super().__call__(**options)
        except TypeError:
            check_names(options, cls, "option of a run")
            raise


class RunSpec(Struct, metaclass=_ChecksNames, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run as a user describes it; `fgmix train --help` lists the options by group.

    Args:
        dataset: registered name, folder `domain/class/image`, CSV manifest or .npz file.
        algorithm: registered name.
        test_domains: names of the domains held out: one, two for leave-one-domain-out selection, none for a model
            that is trained on all domains.
        settings: fields of the algorithm's Config (lr, weight_decay and its own).

    None stands for a default that depends on the dataset and the protocol.

    Example:
        >>> RunSpec(dataset="digits", algorithm="erm", test_domains="photo", steps=100).test_domains
        ('photo',)
    """

    dataset: Annotated[str, About("registered name, folder domain/class/image, CSV manifest or .npz file", "Data")]
    algorithm: Annotated[str, About("method; see `fgmix list algorithms`", "Method")]
    test_domains: tuple[str, ...] = ()
    settings: dict[str, Any] = {}
    arm: Annotated[
        str, About("label of these settings: tables show each arm of a method in a row of its own", "Method")
    ] = ""

    data_root: Annotated[str, About("folder that contains the datasets", "Data", place=True, envvar="FGMIX_DATA")] = ""
    image_size: Annotated[Pixels, About("side of the square input image; 0 for the dataset's default", "Data")] = 0
    holdout_fraction: Annotated[Fraction, About("fraction of each domain held out for validation", "Data")] = 0.2
    trial_seed: Annotated[Count, About("seed of the split of every domain", "Data")] = 0
    class_weight: Annotated[
        ClassWeight, About("balanced: in training, all classes of a domain are drawn equally often", "Data")
    ] = "none"
    weighted_loss: Annotated[
        bool, About("multiply losses by the weights of samples and classes, instead of drawing by them", "Data")
    ] = False
    classes_per_batch: Annotated[
        Count | None,
        About("number of classes per batch (class-aware sampling); 0 samples uniformly; default: as needed", "Data"),
    ] = None
    skip_unreadable: Annotated[bool, About("leave out images that cannot be decoded", "Data")] = False
    window: Annotated[
        str, About("grey values LOW:HIGH to show of deep images, or dicom; default: chosen from them", "Data")
    ] = ""
    augment: Annotated[
        str,
        About("domainbed, flips, none, or module:function of samples and a generator; default: the dataset's", "Data"),
    ] = ""
    standardize: Annotated[
        bool | None,
        About("scale features or channels to mean 0 and variance 1; default for features and signals", "Data"),
    ] = None

    backbone: Annotated[
        str | None,
        About(
            "see `fgmix list backbones`; random weights unless it has a tag or --pretrained or --weights is given",
            "Network",
        ),
    ] = None
    pretrained: Annotated[bool | None, About("start from published weights", "Network")] = None
    weights: Annotated[str, About("local weights file for the backbone", "Network", place=True)] = ""
    head: Annotated[
        Head | None, About("classifier; text: embeddings of the class names; default: linear", "Network")
    ] = None
    templates: Annotated[
        Templates | None, About("with --head text: set of texts per class; default photo, see docs/clip.md", "Network")
    ] = None
    class_names: Annotated[
        str,
        About("with --head text: CSV file class,name; default: the classes in words", "Network", place=True),
    ] = ""
    dropout: Annotated[Dropout, About("dropout on the features", "Network")] = 0.0
    freeze_bn: Annotated[bool | None, About("keep batch-norm layers in evaluation mode", "Network")] = None
    freeze: Annotated[
        Count | str,
        About("number of first sections (stages) not to train, the last module's name, or all", "Network"),
    ] = 0
    lora: Annotated[
        Rank, About("train adapters of this rank beside frozen linear layers; 0: all weights", "Network")
    ] = 0
    lora_targets: Annotated[
        str, About("with --lora: layers, or modules with them, such as attn,mlp.fc1; default: all", "Network")
    ] = ""
    lora_alpha: Annotated[
        Scale, About("with --lora: adapters are multiplied by this over the rank; 0 for the rank", "Network")
    ] = 0.0
    lora_dropout: Annotated[Dropout, About("with --lora: dropout on the inputs of adapters", "Network")] = 0.0
    warmup_head: Annotated[Warmup, About("steps that train the classifier alone before the first step", "Network")] = 0
    channels_last: Annotated[bool | None, About("channels-last memory layout of images", "Network")] = None
    checkpoint_activations: Annotated[
        bool, About("compute activations of blocks again in the backward pass: less memory", "Network", place=True)
    ] = False
    frozen: Annotated[
        bool, About("train a small network on features of the pre-trained backbone, computed once", "Network")
    ] = False
    views: Annotated[
        Views, About("with --frozen or --freeze: augmented views per image, computed once up to the cut", "Network")
    ] = 0

    steps: Annotated[Steps | None, About("number of optimisation steps", "Training")] = None
    batch_size: Annotated[BatchSize | None, About("samples per source domain and step", "Training")] = None
    seed: Annotated[Count, About("seed of initial weights, batches, augmentation and the method", "Training")] = 0
    hparams_seed: Annotated[Count, About("number of the hyper-parameter sample in a search (a label)", "Training")] = 0
    precision: Annotated[Precision, About("bf16: autocast to bfloat16", "Training")] = "fp32"
    compile: Annotated[bool, About("compile the featurizer with torch.compile", "Training")] = False
    deterministic: Annotated[bool, About("only deterministic operations, also on a GPU", "Training")] = False
    checkpoint_every: Annotated[
        Count, About("steps between checkpoints; 0 for one at every evaluation", "Training", place=True)
    ] = 0
    checkpoint_minutes: Annotated[
        Minutes, About("minutes between checkpoints, besides those by step; 0 for none", "Training", place=True)
    ] = 5.0
    keep: Annotated[
        Keep, About("weights to keep: all, the selected model's alone, or none", "Training", place=True)
    ] = "all"

    protocol: Annotated[Protocol, About("evaluation protocol; see docs/protocol.md", "Evaluation")] = "clean"
    eval_every: Annotated[Positive | None, About("steps between evaluations", "Evaluation")] = None
    averaging: Annotated[Averaging, About("weight averaging evaluated beside the raw model", "Evaluation")] = "swa"
    averaging_start: Annotated[Count, About("first step that enters the average", "Evaluation")] = 100
    metric: Annotated[Metric, About("metric that is reported first and selects the model", "Evaluation")] = "accuracy"
    evaluate_train: Annotated[bool, About("also evaluate the training parts of the source domains", "Evaluation")] = (
        False
    )
    image_lists: Annotated[
        str,
        About(
            "files with paths of test images that are counted apart, comma-separated",
            "Evaluation",
            place=True,
        ),
    ] = ""
    snapshots: Annotated[Snapshots, About("number of weight snapshots to keep, for surface plots", "Evaluation")] = 0

    def __post_init__(self) -> None:
        force_setattr(self, "test_domains", _check_names(self.test_domains))
        if not isinstance(self.settings, Mapping):
            raise bad_value("settings", "a dictionary of the method's settings", self.settings)
        if "steps" in self.settings:
            raise UserError("The number of steps is given as `steps`. Found it among the settings. Drop it there.")
        force_setattr(self, "settings", {str(name): value for name, value in self.settings.items()})
        check_options(self, RunSpec)
        if self.arm:
            _check_arm(self.arm)

    @property
    def on_activations(self) -> bool:
        """Whether the run trains on cached outputs of a frozen network, or of its frozen first sections."""
        return self.frozen or bool(self.freeze and self.views)


# For `help(RunSpec)`: dataset and algorithm are described above.
RunSpec.__doc__ = "\n".join(
    [
        f"{RunSpec.__doc__}",
        "    The other fields:",
        "",
        *(f"    - `{name}`: {option.help}" for name, option in [*options_of(RunSpec).items()][2:]),
        "    ",
    ]
)


class ResolvedSpec(RunSpec, frozen=True, kw_only=True):
    """A run with all defaults filled in, made by `resolve` and stored in records."""

    classes_per_batch: Count = 0
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"  # type: ignore[assignment]  # fp16: of earlier versions
    bf16: Literal[False] = False  # of earlier versions: names of runs include it
    standardize: bool = False  # for records made before this option
    backbone: str
    head: Head = "linear"
    pretrained: bool
    freeze_bn: bool
    channels_last: bool
    steps: Steps
    batch_size: BatchSize
    eval_every: Positive
    dataset_name: str  # which does not depend on the dataset's location
    data: str  # fingerprint of the dataset
    input_shape: tuple[int, ...]  # (c, h, w) of images, (c, t) of signals, (f,) of features, as the network sees them
    weights_digest: str = ""  # of the weights file, the user's or a package's; empty without one
    backbone_digest: str = ""  # of the source of a plug-in's backbone; empty for others, and in older records
    mean: tuple[Mean, ...] = ()  # per channel, subtracted from images in [0, 1]; empty if they are not normalised
    std: tuple[Deviation, ...] = ()  # per channel, by which they are then divided
    interpolation: Literal["", "bilinear", "bicubic"] = ""  # how images are resized; empty if they are not
    code_size: int = 0  # number of features of a frozen backbone; 0 if the backbone is trained
    tail: float = 0.0  # standard deviations beyond which standardised features are damped; 0 if they are not
    augment_code: str = ""  # digest of a user's augmentation: of its code, or of what a dataset's makes of a sample
    texts: tuple[str, ...] = ()  # names of the classes as texts have them; empty for heads without texts
    lists_digest: str = ""  # of lists of images that are counted apart; empty without

    def __post_init__(self) -> None:
        # msgspec checks what it decodes, but not what is made by hand. Here it checks both: 5 µs of a record's 300.
        try:
            msgspec.convert(self, _PLAIN, from_attributes=True)
        except msgspec.ValidationError as error:
            raise UserError(f"Expected options of a run that fit. {str(error).replace('`$.', '`')}.") from error
        if self.arm:
            _check_arm(self.arm)

    @property
    def adapts_at_test(self) -> bool:
        """Whether the method adapts to the samples that it predicts: only such methods have this setting."""
        return "test_batch_size" in self.settings

    @property
    def all_settings(self) -> dict[str, Any]:
        """The settings, with those of the optimiser that specs leave out."""
        return {**OPTIMIZER, **self.settings}

    @property
    def identity(self) -> dict[str, Any]:
        """What identifies the run: specs with equal identities are the same run.

        Data and weights are identified by their digests, not by their paths.
        """
        places = {name for name, option in options_of(RunSpec).items() if option.about.place}
        content = {name: value for name, value in to_plain(self).items() if name not in places}
        return {**content, "dataset": self.dataset_name}

    @property
    def pretraining(self) -> str:
        """Names of the data of the pre-training; empty without, and if the tag of the weights says nothing."""
        return name_pretraining(self.backbone) if self.pretrained or self.weights_digest else ""

    @property
    def name(self) -> str:
        """Name of the run's folder, a readable part and a digest: `digits-erm-photo-1f3a…`."""
        digest = hashlib.blake2b(json.dumps(self.identity, sort_keys=True).encode(), digest_size=6).hexdigest()
        readable = [self.dataset_name, self.algorithm, "+".join(self.test_domains) or "all"]
        front = "-".join(re.sub(r"[^\w+.%-]+", "_", part) for part in readable)
        # A folder's name has 255 bytes at most. If many or long domains exceed that, the digest distinguishes runs.
        return f"{front.encode()[:LONGEST_NAME].decode(errors='ignore')}-{digest}"


# The fields of `ResolvedSpec` without its `__post_init__`.
_PLAIN = msgspec.defstruct("Plain", list(get_type_hints(ResolvedSpec, include_extras=True).items()))


class RunRecord(Struct, frozen=True, kw_only=True, dict=True, forbid_unknown_fields=True):
    """A finished run. It contains no times and no host names: repeating a run gives a bit-identical record."""

    spec: ResolvedSpec  # with the name and the digest of the dataset
    status: Literal["done", "diverged"]  # diverged if a loss was not finite
    fgmix_version: str = field(name="fgmix")  # the version that made it
    domains: tuple[str, ...]  # names of all domains, in the dataset's order
    evaluations: Packed  # in order of steps
    diverged_at: int | None = None  # the first step whose loss was not finite; None if there is none
    label: str = ""  # the algorithm's name in tables, declared in its own file; by default its registered name
    domainbed_name: str | None = None  # DomainBed's name of the algorithm; None if DomainBed does not have it
    cost: float | None = None  # operations of a step relative to ERM's; None if unknown, and in older records
    notes: tuple[str, ...] = ()  # what was changed or left out when the data were read, and on the finished run
    classes: tuple[str, ...] = ()  # their names; empty in older records
    unseen: Unseen = {}  # metrics of the selected weights on the training part of test domains; empty in older records
    # how the tensors of a weights file were matched with the backbone's, "by name" or "by order"; None without a file
    weights_matched: str | None = None
    gpu: dict[str, str] | None = None  # name of the GPU that finished it, versions of driver, CUDA and cuDNN
    text_digest: str = ""  # of the text embeddings of the classes; empty for heads without texts
    code: str = ""  # digest of the method's source, and the package of a plug-in; empty in older records
    schema: Literal[2] = 2  # version of this schema
    # Not part of the record: where it was read from
    folder: Path | None = None
    origin: str = ""  # in a report of several folders: which, or with which options
    variant: str = ""  # in a report of a method with different settings: which

    def __post_init__(self) -> None:
        given: object = self.evaluations
        if not isinstance(given, Evaluations):
            force_setattr(self, "evaluations", Evaluations(self.evaluations))
        if not self.label:
            force_setattr(self, "label", self.spec.algorithm)

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

    @property
    def models(self) -> tuple[Model, ...]:
        """The models that were evaluated: the raw one, and the average if there is one."""
        return self.evaluations.models

    def candidates(self, model: Model = "raw") -> tuple[Evaluation, ...]:
        """Return the evaluations of a model among which a selection rule selects; at least one."""
        self.require(model)
        evaluations = tuple(e for e in self.evaluations if e.has(model))
        return evaluations if selected_weights(model) == "best" else evaluations[-1:]

    def require(self, model: Model) -> None:
        """Raise an error if a model was not evaluated."""
        if not self.models:
            raise UserError(
                f"Expected a run with evaluations. Found one that diverged at step {self.diverged_at}, before the "
                "first. Train it with a lower learning rate."
            )
        if model not in self.models:
            raise UserError(
                f"Expected a model that the run evaluated: {', '.join(self.models)}. Found {model!r}. "
                "Train with --averaging swa or swad to have an averaged one."
            )

    def best(self, model: Model = "raw") -> tuple[int, float]:
        """Return the place of the evaluation that training-domain validation selects, and its validation value.

        Of equal values the earliest is selected.
        """
        self.require(model)
        values = self.evaluations.validations(self.sources, model)
        place = max(values, key=values.__getitem__) if selected_weights(model) == "best" else max(values)
        return place, values[place]

    def selected(self, model: Model = "raw") -> Evaluation:
        """Return the evaluation that training-domain validation selects; the earliest of equals."""
        return self.evaluations[self.best(model)[0]]

    def score(self, place: int, model: Model, domain: str, split: str) -> float:
        """Return a score of the evaluation at a place: accuracy, or the metric that the run selects by."""
        return self.evaluations.score(place, model, domain, split)

    @property
    def still_improving(self) -> bool:
        """Whether validation accuracy was still rising when the run ended, so that more steps may help.

        It was if the last evaluation (of the averaged model, if there is one) is better by at least `GAIN` than all of
        the first three quarters of the steps, and better than all others.
        """
        model = self.models[-1] if self.models else "raw"
        by_place = self.evaluations.validations(self.sources, model)
        values = {self.evaluations.steps[place]: value for place, value in by_place.items()}
        early = [value for step, value in values.items() if step <= 0.75 * self.spec.steps]
        last = values.pop(self.spec.steps, 0.0)
        return bool(early) and last >= max(early) + GAIN and last > max(values.values())

    def test_accuracy(self, model: Model = "raw") -> float:
        """Return the accuracy on the test domain at the selected evaluation: the number that DomainBed reports.

        It is measured on the training part of the domain, which no selection rule uses. With several test domains it
        is their mean; `record.accuracy` has each of them.
        """
        tests = self.spec.test_domains
        if not tests:
            raise UserError("Expected a run with a test domain. Found one that was trained on all domains.")
        scores = self.selected(model).accuracy[model]
        return sum(scores[name]["train"] for name in tests) / len(tests)

    @property
    def accuracy(self) -> Shares:
        """Accuracy by domain and split of the selected raw model: `record.accuracy["sketch"]["holdout"]`."""
        return self.selected().accuracy["raw"]


def keeps(spec: ResolvedSpec, which: Which, model: Model) -> bool:
    """Say whether a run keeps these weights of a model, by its option `keep`."""
    return spec.keep == "all" or (spec.keep == "best" and which == selected_weights(model))


def selected_weights(model: Model) -> Which:
    """Say which weights of a run are the selected ones of a model.

    SWAD includes a selection of steps: its model is the one after the last step, under any selection rule.
    """
    return "last" if model == "swad" else "best"


# Plain values, as JSON has them

# Options that came after runs were published: left out where they are empty, so that those runs keep their names.
_LATER = (
    *("tail", "backbone_digest", "augment", "augment_code", "window", "checkpoint_activations"),
    *("templates", "class_names", "texts", "image_lists", "lists_digest", "weighted_loss", *LORA),
)


def to_plain(value: Struct) -> dict[str, Any]:
    """Turn a spec, an evaluation or a record into plain values, equal to what JSON reads back."""
    if isinstance(value, RunRecord):
        value = msgspec.structs.replace(value, folder=None)
    # By way of JSON, which makes lists of tuples; `enc_hook` makes one of `Evaluations`.
    plain: dict[str, Any] = json.loads(json.dumps(msgspec.to_builtins(value, enc_hook=list)))
    if isinstance(value, RunRecord):
        del plain["folder"], plain["origin"], plain["variant"]
        plain["spec"] = to_plain(value.spec)
        for name in ("code", "cost", "text_digest"):
            if not plain[name]:
                del plain[name]  # so that records made before it do not change
    elif isinstance(value, RunSpec):
        for name in _LATER:
            if not plain.get(name, True):
                del plain[name]
    return plain


def to_spec(values: Mapping[str, Any], cls: type[S]) -> S:
    """Turn plain values into a spec; a bad one is an error that names the option."""
    check_names(values, cls, "option of a run")
    if not issubclass(cls, ResolvedSpec):
        return cls(**values)  # which checks types and bounds
    try:
        return msgspec.convert(values, cls)
    except msgspec.ValidationError as error:
        raise UserError(f"Expected options of a run that fit. {str(error).replace('`$.', '`')}.") from error


def check_record(record: RunRecord) -> RunRecord:
    """Return the record; raise an error for values that no run produces: it may have been edited."""
    names, tests = record.domains, record.spec.test_domains
    if not names or not {*tests} <= {*names}:
        raise bad_value("domains", "the names of all domains, those held out among them", names)
    if record.status == "done" and not record.evaluations:
        raise bad_value("evaluations", "those of a finished run", [])
    record.evaluations.check(names, tests)
    for each in (metrics for domains in record.unseen.values() for metrics in domains.values()):
        classes = len(record.classes) or len(each.recall)  # older records do not store the names of classes
        sizes = {len(each.recall), *map(len, each.confusion), *([len(each.confusion)] if each.confusion else [])}
        if sizes != {classes} or all(value is None for value in each.recall):
            raise bad_value("unseen", f"metrics with the recall and the confusion of {classes} classes", sizes)
    return record


# The command line of a spec


def options(omit: Iterable[str] = ()) -> dict[str, Option]:
    """Return the declared options of a run by name, except those in `omit`."""
    return {name: option for name, option in options_of(RunSpec).items() if name not in set(omit)}


def command(spec: RunSpec, out: str = "runs") -> str:
    """Write the command that repeats a run: the same options, hence the same run.

    >>> spec = RunSpec(dataset="digits", algorithm="erm", test_domains="photo", steps=10, settings={"lr": 0.01})
    >>> command(spec)
    'fgmix train --dataset digits --algorithm erm --test-domain photo --steps 10 --set lr=0.01 --out runs'
    """
    words = ["fgmix", "train", "--dataset", spec.dataset, "--algorithm", spec.algorithm]
    for domain in spec.test_domains:
        words += ["--test-domain", domain]
    for name, option in options(omit=("dataset", "algorithm")).items():
        value = getattr(spec, name)
        if value != option.default:
            words += _write_flag(name, value)
    for name, value in spec.settings.items():
        words += ["--set", f"{name}={str(value).lower() if value is None or isinstance(value, bool) else value}"]
    return shlex.join([*words, "--out", out])


def flag_of(name: str) -> str:
    """holdout_fraction → --holdout-fraction."""
    return "--" + name.replace("_", "-")


def _write_flag(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag_of(name) if value else flag_of(f"no_{name}")]
    return [flag_of(name), str(value)]


def _check_names(names: Any) -> tuple[str, ...]:
    """One name or several as a tuple of names."""
    several = (names,) if isinstance(names, str) else names
    if isinstance(several, PathLike | Mapping) or not isinstance(several, Iterable):
        raise bad_value("test_domains", "a name or a sequence of names, such as ('photo',)", names)
    several = tuple(several)
    for name in several:
        if not isinstance(name, str):
            hint = f"Domains have names; a domain numbered {name} in an array is {str(name)!r}."
            raise bad_value("test_domains", "names of domains", names, hint)
    return several


def _check_arm(arm: str) -> None:
    if not (arm.isprintable() and arm == arm.strip() and len(arm) <= LONGEST_ARM):
        raise bad_value("arm", f"a label for tables: printable, not blank, {LONGEST_ARM} characters at most", arm)
