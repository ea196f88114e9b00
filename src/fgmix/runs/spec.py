"""Specs of runs: everything that can change the result of a run, with each option declared once.

`RunSpec` is the user's, with None for defaults that depend on the dataset and the protocol. `resolve`
(runs/resolve.py) turns it into a `ResolvedSpec`, in which all defaults are filled in, and which defines the identity
and the name of the run. No torch.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass
from functools import cache
from os import PathLike
from typing import Any, Literal, Self

from fgmix.errors import UserError, bad_value, unknown
from fgmix.fields import Field, check_fields, declare, fields_of
from fgmix.metrics import Metric

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
    for name, field in options(omit=("dataset", "algorithm")).items():
        value = getattr(spec, name)
        if value != field.default:
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
