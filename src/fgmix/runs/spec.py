"""What makes a run: everything that can change its result, and nothing that cannot."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from fgmix.errors import UserError, bad_value, unknown

if TYPE_CHECKING:
    from fgmix.data import DomainDataset

Protocol = Literal["clean", "domainbed"]
Averaging = Literal["swa", "swad", "none"]

CHOICES: dict[str, tuple[str, ...]] = {
    "head": ("linear", "mlp"),
    "protocol": get_args(Protocol),
    "averaging": get_args(Averaging),
}


@dataclass(frozen=True)
class Defaults:
    """What a run takes where its spec is silent, by kind of dataset."""

    backbone: str
    pretrained: bool
    lr: float
    batch_size: int
    steps: int
    eval_every: int
    channels_last: bool


# images: DomainBed's published protocol. small_images and features: sized for a CPU (docs/protocol.md).
DEFAULTS = {
    "images": Defaults("resnet50", True, 5e-5, 32, 5000, 300, True),
    "small_images": Defaults("small_cnn", False, 1e-3, 32, 300, 100, False),
    "features": Defaults("mlp", False, 1e-3, 32, 1000, 100, False),
}
LONGER = {"DomainNet": {"steps": 15000, "eval_every": 1000}}


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """A run. None means the dataset's default; `resolve` fills every None in.

    Args:
        dataset: registered name, folder or .npz file.
        algorithm: registered name.
        test_domains: names of the domains held out (one; two for leave-one-domain-out selection; none for a model to
            be used, trained on all).
        settings: fields of the algorithm's Config (lr, weight_decay and its own).
        backbone: our own (small_cnn, mlp, …) or any timm model.
        pretrained: timm's published weights.
        weights: a local weights file for the backbone.
        head: "linear" or "mlp".
        dropout: on the latent code.
        freeze_bn: batch-norm in evaluation mode; by default where the weights are pre-trained.
        image_size: side of the square that the network sees.
        steps: T.
        batch_size: instances per source domain and step.
        eval_every: steps between evaluations.
        checkpoint_every: steps between checkpoints; by default one at every evaluation.
        seed: initial weights, batches, augmentation, the algorithm's draws.
        trial_seed: DomainBed's split of every domain.
        hparams_seed: which draw of a search this is; 0 is the defaults.
        holdout_fraction: share of each domain held out.
        classes_per_batch: m of the class-aware sampler; None samples uniformly.
        protocol: "clean" validates on clean images, "domainbed" on augmented ones, as DomainBed does.
        averaging: "swa" evaluates the running mean of the weights beside the raw ones, "swad" the overfit-aware mean.
        averaging_start: the first step that enters the running mean.
        evaluate_train: also score the sources' training parts (no selection rule uses them).
        snapshots: how many weights to keep, evenly spaced, for surface plots.
        bf16: autocast to bfloat16.
        channels_last: memory layout of images.
        data_root: folder that holds the datasets' folders.
        skip_unreadable: leave undecodable image files out.
    """

    dataset: str
    algorithm: str
    test_domains: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    backbone: str | None = None
    pretrained: bool | None = None
    weights: str | None = None
    head: str = "linear"
    dropout: float = 0.0
    freeze_bn: bool | None = None
    image_size: int | None = None
    steps: int | None = None
    batch_size: int | None = None
    eval_every: int | None = None
    checkpoint_every: int | None = None
    seed: int = 0
    trial_seed: int = 0
    hparams_seed: int = 0
    holdout_fraction: float = 0.2
    classes_per_batch: int | None = None
    protocol: Protocol = "clean"
    averaging: Averaging = "swa"
    averaging_start: int = 100
    evaluate_train: bool = False
    snapshots: int = 0
    bf16: bool = False
    channels_last: bool | None = None
    data_root: str | None = None
    skip_unreadable: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "test_domains", tuple(self.test_domains))
        for name in ("steps", "batch_size", "eval_every", "checkpoint_every", "image_size", "classes_per_batch"):
            value = getattr(self, name)
            if value is not None and (not _is_number(value, int) or value < 1):
                raise bad_value(name, "a positive integer", value)
        for name in ("snapshots", "averaging_start", "trial_seed", "hparams_seed", "seed"):
            value = getattr(self, name)
            if not _is_number(value, int) or value < 0:
                raise bad_value(name, "zero or a positive integer", value)
        for name in ("evaluate_train", "bf16", "skip_unreadable"):
            if not isinstance(getattr(self, name), bool):
                raise bad_value(name, "true or false", getattr(self, name))
        for name in ("pretrained", "freeze_bn", "channels_last"):
            if not isinstance(getattr(self, name), bool | None):
                raise bad_value(name, "true, false or null", getattr(self, name))
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise unknown(name, str(getattr(self, name)), allowed)
        if not _is_number(self.dropout, int, float) or not 0 <= self.dropout < 1:
            raise bad_value("dropout", "at least 0 and below 1", self.dropout)
        if not _is_number(self.holdout_fraction, int, float) or not 0 < self.holdout_fraction < 1:
            raise bad_value("holdout_fraction", "between 0 and 1", self.holdout_fraction)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**dataclasses.asdict(self), "test_domains": list(self.test_domains)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunSpec:
        """The spec that `as_dict` wrote."""
        known = cls.__dataclass_fields__  # not fields(): a report reads thousands of specs
        for name in values:
            if name not in known:
                raise unknown("field of a run's spec", name, known)
        return cls(**values)


def _is_number(value: object, *kinds: type) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)  # True is an int to Python


def resolve(spec: RunSpec, dataset: DomainDataset) -> RunSpec:
    """The same spec with every default filled in and every name checked, before anything is trained."""
    from fgmix.algorithms import get

    for name in spec.test_domains:
        dataset.index(name)
    sources = [name for name in dataset.domain_names if name not in spec.test_domains]
    if len(set(spec.test_domains)) != len(spec.test_domains):
        raise UserError(f"Expected different test domains. Found {', '.join(spec.test_domains)}.")
    algorithm = get(spec.algorithm)
    if len(sources) < algorithm.min_domains:
        raise UserError(
            f"{spec.algorithm} needs at least {algorithm.min_domains} source domains. Found {len(sources)} "
            f"({', '.join(sources) or 'none'}) after holding out {', '.join(spec.test_domains) or 'none'}. "
            "Hold fewer out, or take a method that works on one, such as erm."
        )
    base = DEFAULTS[dataset.kind]
    longer = LONGER.get(dataset.name, {})
    steps = spec.steps or longer.get("steps", base.steps)
    config = algorithm.Config.of(**{"lr": base.lr, **spec.settings, "steps": steps})
    settings = {name: value for name, value in config.as_dict().items() if name != "steps"}
    backbone = spec.backbone or base.backbone
    pretrained = (
        spec.pretrained if spec.pretrained is not None else base.pretrained and not spec.weights and not spec.backbone
    )
    return replace(
        spec,
        settings=settings,
        backbone=backbone,
        pretrained=pretrained,
        freeze_bn=spec.freeze_bn if spec.freeze_bn is not None else bool(pretrained or spec.weights),
        image_size=dataset.input_shape[-1] if len(dataset.input_shape) == 3 else None,
        steps=steps,
        batch_size=spec.batch_size or base.batch_size,
        eval_every=min(spec.eval_every or longer.get("eval_every", base.eval_every), steps),
        channels_last=spec.channels_last if spec.channels_last is not None else base.channels_last,
    )


# Where a thing lies says nothing about what it is: contents are identified by their digests instead.
_PLACES = ("dataset", "data_root", "weights", "checkpoint_every")


def identity(spec: RunSpec, dataset: DomainDataset, weights_digest: str | None) -> dict[str, Any]:
    """What a resolved spec is, wherever its files lie: the content that names a run's folder."""
    content = {name: value for name, value in spec.as_dict().items() if name not in _PLACES}
    return {**content, "dataset": dataset.name, "data": dataset.fingerprint, "weights": weights_digest}


def folder_name(content: dict[str, Any]) -> str:
    """Readable front, digest behind: `digits-erm-photo-1f3a…`."""
    digest = hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=6).hexdigest()
    readable = [content["dataset"], content["algorithm"], "+".join(content["test_domains"]) or "all"]
    return "-".join([*(re.sub(r"[^\w+.%-]+", "_", part) for part in readable), digest])
