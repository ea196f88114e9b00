"""From a user's spec to a resolved one: all defaults filled in, all names checked."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fgmix.algorithms import Algorithm, BaseConfig, configure, get
from fgmix.data import DomainDataset
from fgmix.data.dataset import digest_lists, fingerprint_of
from fgmix.data.sampling import MOST_MISSED, choose_classes_per_batch, class_shares
from fgmix.data.standardisation import TAIL
from fgmix.data.transforms import digest_transform, find_transform
from fgmix.errors import UserError, bad_value, unknown
from fgmix.networks import build_featurizer
from fgmix.networks.names import (
    PACKAGES,
    check_pretrained,
    full_name,
    is_clip,
    is_vision_transformer,
    model_of,
    packaged_weights,
)
from fgmix.networks.preprocessing import IMAGENET, normalisation_of
from fgmix.networks.registry import OWN_BACKBONES, digest_backbone, find_backbone
from fgmix.networks.text import TEXT_HEADS
from fgmix.records.files import read_bytes
from fgmix.records.options import options_of
from fgmix.records.protocols import DEFAULTS, FROZEN_DEFAULTS, PROTOCOLS, Defaults, Rules
from fgmix.records.schema import LORA, OPTIMIZER, Precision, ResolvedSpec, RunSpec
from fgmix.training.text import name_classes

LARGEST = 10.0  # value of an image up to which it counts as scaled: normalised images reach about 3


def resolve(spec: RunSpec, dataset: DomainDataset) -> ResolvedSpec:
    """Resolve the spec of a run on the dataset that it names; resolving it again changes nothing."""
    _check_options(spec, dataset)
    rules, base = PROTOCOLS[spec.protocol], FROZEN_DEFAULTS if spec.frozen else DEFAULTS[dataset.kind]
    standardize = _standardises(spec, dataset) if spec.standardize is None else spec.standardize
    default_steps, eval_every = base.steps, base.eval_every
    if default_steps is None:
        default_steps, eval_every = rules.longer.get(dataset.name, (rules.steps, eval_every))
    network = _resolve_network(spec, dataset, rules, base)
    kind = "features" if spec.frozen else dataset.kind
    # Adapters have ten times the rate of a transformer's own weights, which is the usual one.
    lr = choose_lr(kind, None if spec.frozen or spec.lora else spec.backbone or rules.backbone, base)
    has_texts = network["backbone"] not in OWN_BACKBONES and is_clip(network["backbone"])
    algorithm = get(spec.algorithm)
    steps = (spec.steps or default_steps) if algorithm.trains else 1
    head = algorithm.head or spec.head or (rules.head if has_texts else "linear")
    defaults = {"batch_size": base.batch_size, "lr": lr, **rules.optimizer}
    if rules.commit:
        defaults |= _list_domainbed_defaults(algorithm, dataset.name, kind, lr / base.lr)
    usual = defaults.pop("batch_size")
    batch_size = spec.batch_size or usual
    sources = [domain for domain in dataset.domains if domain.name not in spec.test_domains]
    config = configure(
        spec.algorithm,
        {**defaults, **spec.settings, "steps": steps},
        n_domains=len(sources),
        batch_size=batch_size,
        shape=dataset.input_shape,
        soft=any(domain.soft is not None for domain in sources),
        weighted=spec.weighted_loss,
    )
    shared_by = algorithm.domains_per_class(config, len(sources))
    if rules.fixes_optimizer:
        _check_optimizer(config, spec.protocol, rules)
    given = {name: getattr(spec, name) for name in RunSpec.__struct_fields__}
    decided = {
        "settings": {name: value for name, value in config.as_dict().items() if name != "steps"},
        "image_size": dataset.input_shape[-1] if len(dataset.input_shape) == 3 else 0,
        "steps": steps,
        "eval_every": min(spec.eval_every or eval_every, steps),
        "batch_size": batch_size,
        "classes_per_batch": spec.classes_per_batch or 0,
        "channels_last": base.channels_last if spec.channels_last is None else spec.channels_last,
        "standardize": standardize,
        "lists_digest": digest_lists(spec.image_lists) if spec.image_lists else "",
        "window": dataset.window,
        "lora_alpha": spec.lora_alpha or float(spec.lora),
        "tail": TAIL if standardize and kind == "features" else 0.0,
        "head": head,
        **network,
        **_resolve_augment(spec, dataset),
    }
    if head in TEXT_HEADS or spec.templates or spec.class_names:
        decided |= _resolve_texts(spec, dataset, head, network["backbone"])
    if shared_by:
        needs = algorithm.label, shared_by, batch_size
        decided["classes_per_batch"] = _resolve_classes_per_batch(spec, dataset, *needs)
    if not algorithm.trains:
        decided |= {"averaging": "none", "warmup_head": 0}
    elif spec.averaging != "none":
        # SWAD finds its start by the losses; neither average includes steps in which the base model is not trained.
        first = algorithm.first_base_step(config) + 1
        start = first if spec.averaging == "swad" else max(spec.averaging_start, first)
        decided |= {"averaging_start": start, "averaging": spec.averaging if start <= steps else "none"}
    known = {"dataset_name": dataset.name, "data": dataset.fingerprint, "input_shape": dataset.input_shape}
    return ResolvedSpec(**{**given, **decided, **known})


def _resolve_classes_per_batch(spec: RunSpec, dataset: DomainDataset, label: str, needed: int, batch_size: int) -> int:
    """Resolve the number of classes per batch: class-aware sampling where a method that needs a class in several
    domains would seldom find one by uniform sampling, which would silently leave it ERM."""
    given = spec.classes_per_batch
    sources = [domain for domain in dataset.domains if domain.name not in spec.test_domains]
    shares = class_shares(sources, len(dataset.classes))
    most = int((shares > 0).sum(0).max())  # source domains that share a class
    if most < needed:
        fewer = f", or fewer domains with --set domains_per_tuple={most}" if most > 1 else ""
        raise UserError(
            f"Expected a class that {needed} source domains share, whose codes {label} mixes. Found none in "
            f"{dataset.name}. Choose another method{fewer}."
        )
    if given is not None or spec.class_weight != "none" or any(domain.weights is not None for domain in sources):
        return given or 0
    return choose_classes_per_batch(shares, batch_size, needed)


def _list_domainbed_defaults(algorithm: type[Algorithm], dataset: str, kind: str, share: float) -> dict[str, Any]:
    """List what DomainBed sets for a method; `share` is that of the usual learning rate."""
    theirs = {name: each.default for name, each in algorithm.domainbed_space(dataset, kind).items()}
    if "lr" in theirs:
        theirs["lr"] *= share  # a tenth for vision transformers
    return theirs


def choose_lr(kind: str, backbone: str | None, base: Defaults) -> float:
    """Choose the default learning rate: a tenth of the usual one for vision transformers on images.

    The backbone is None for the default one of the kind of dataset, whose defaults are `base`.
    """
    named = backbone if kind == "images" and backbone not in OWN_BACKBONES else None
    return base.lr / 10 if named and is_vision_transformer(named) else base.lr


def list_notes(spec: RunSpec, resolved: ResolvedSpec) -> list[str]:
    """Return notes to print before a run starts: weights that were not asked for, and parts without an effect."""
    notes = []
    random = not resolved.pretrained and not resolved.weights and resolved.backbone not in OWN_BACKBONES
    if (
        random and spec.pretrained is None and find_backbone(resolved.backbone) is None
    ):  # without --backbone, the default network is pre-trained
        notes.append(
            f"{resolved.backbone} starts from random weights. Add --pretrained for published ones, or --no-pretrained "
            "to say that this is meant."
        )
    algorithm = get(resolved.algorithm)
    if spec.averaging != resolved.averaging and algorithm.trains:
        notes.append(
            f"No averaged model is evaluated: averaging starts at step {resolved.averaging_start} and the run ends at "
            f"step {resolved.steps}. Raise --steps or lower --averaging-start."
        )
    if spec.classes_per_batch is None and resolved.classes_per_batch:
        notes.append(
            f"Batches of {algorithm.label} have {resolved.classes_per_batch} classes: with uniform sampling, more than "
            f"{MOST_MISSED:.0%} of the steps would find no class that source domains share, and mix nothing. Add "
            f"--classes-per-batch {resolved.classes_per_batch} for such batches in all methods, or 0 for uniform ones."
        )
    if algorithm.delayed:
        notes += algorithm.idle_parts(algorithm.Config.of(**resolved.settings, steps=resolved.steps))
    return notes


def _check_options(spec: RunSpec, dataset: DomainDataset) -> None:
    """Raise an error for options that do not fit the dataset, or that would be ignored."""
    if len(dataset.classes) < 2:
        raise UserError(
            f"Expected at least two classes to tell apart in {dataset.name}. Found {', '.join(dataset.classes)}. Add "
            "samples of another class."
        )
    for name in spec.test_domains:
        if name not in dataset.domain_names:
            raise unknown(f"domain of {dataset.name}", name, dataset.domain_names)
    if len(set(spec.test_domains)) != len(spec.test_domains):
        raise UserError(f"Expected different test domains. Found {', '.join(spec.test_domains)}. Name each one once.")
    if spec.precision not in get_args(Precision):  # records of earlier versions may have fp16
        raise bad_value("precision", "fp32 or bf16; float16 is no longer supported", spec.precision)
    if spec.checkpoint_activations and not get(spec.algorithm).recomputable:
        should = f"false for {spec.algorithm}, which changes weights between forward and backward pass"
        raise bad_value("checkpoint_activations", should, True)
    for name in ("freeze", "warmup_head"):
        if spec.frozen and getattr(spec, name):
            hint = "Drop one of the two."
            raise bad_value(name, "0 with --frozen, whose backbone does not train at all", getattr(spec, name), hint)
    for name in ("frozen", "freeze"):
        if spec.lora and getattr(spec, name):
            raise bad_value("lora", f"0 with --{name}", spec.lora, "Adapters leave the backbone as it is: drop one.")
    if spec.lora and spec.freeze_bn is False:
        raise bad_value("freeze_bn", "true with --lora, which leaves the backbone as it is", False)
    for name in LORA:
        if not spec.lora and getattr(spec, name):
            raise bad_value(name, "left out without --lora RANK", getattr(spec, name))
    shape = dataset.input_shape
    if spec.image_size and (len(shape) != 3 or shape[-1] != spec.image_size):
        hint = "Only images in files are resized: drop it."
        raise bad_value("image_size", f"0 for {dataset.name}, whose samples are {shape}", spec.image_size, hint)
    if spec.window and dataset.kind != "images":
        raise bad_value("window", f"left out for {dataset.name}: only images in files have one", spec.window)
    if (spec.frozen or spec.views) and dataset.kind != "images":
        name, off, found = ("frozen", "false", True) if spec.frozen else ("views", "0", spec.views)
        hint = "It computes activations of images in files."
        raise bad_value(name, f"{off} for {dataset.name}, which holds {dataset.kind.replace('_', ' ')}", found, hint)
    usual = options_of(RunSpec)["holdout_fraction"].default
    if spec.holdout_fraction != usual and any(each.holdout is not None for each in dataset.domains):
        hint = "Drop it, or the column `split`."
        raise bad_value(
            "holdout_fraction", f"left out for {dataset.name}, which has a split", spec.holdout_fraction, hint
        )
    if spec.views and not spec.on_activations:
        raise bad_value("views", "0 without --frozen or --freeze: training augments every image anew", spec.views)
    if spec.standardize and dataset.kind == "images" and not spec.frozen:
        raise bad_value("standardize", f"false for {dataset.name}: images in files are normalised", True)
    if spec.standardize is False and dataset.columns:
        raise bad_value("standardize", f"true for {dataset.name}: it replaces the missing values of a table", False)
    weighted = spec.class_weight != "none" or any(domain.weights is not None for domain in dataset.domains)
    if spec.weighted_loss and not weighted:
        hint = "Give `sample_weight` with the data, or --class-weight balanced."
        raise bad_value("weighted_loss", f"false for {dataset.name}, where all samples weigh the same", True, hint)
    if spec.classes_per_batch and weighted:
        hint = "It draws classes equally often by itself: drop it, or drop the weights."
        raise bad_value("classes_per_batch", "0 where classes or samples have weights", spec.classes_per_batch, hint)
    if (spec.classes_per_batch or 0) > len(dataset.classes):
        should = f"at most {len(dataset.classes)}, the number of classes of {dataset.name}"
        raise bad_value("classes_per_batch", should, spec.classes_per_batch)


def _check_optimizer(config: BaseConfig, protocol: str, rules: Rules) -> None:
    """Raise an error for settings of the optimiser that a protocol does not have."""
    for name, usual in {**OPTIMIZER, **rules.optimizer}.items():
        if getattr(config, name) != usual:
            hint = "Leave it out, or use --protocol clean."
            raise bad_value(name, f"{usual} under the protocol {protocol}, which fixes it", getattr(config, name), hint)


def _resolve_texts(spec: RunSpec, dataset: DomainDataset, head: str, backbone: str) -> dict[str, Any]:
    """Resolve the names of the classes and the templates for a head of text embeddings."""
    if head not in TEXT_HEADS:
        name = "templates" if spec.templates else "class_names"
        raise bad_value(name, "left out without a head of texts", getattr(spec, name), "Add --head text.")
    if spec.frozen or not is_clip(backbone):
        needed_by = f"--head {head}" if head == spec.head else spec.algorithm
        raise UserError(
            f"Expected a backbone with a text tower for {needed_by}, such as open_clip:ViT-B-16.openai. Found "
            f"{'--frozen' if spec.frozen else backbone}. Name one with --backbone, without --frozen."
        )
    texts = spec.texts if isinstance(spec, ResolvedSpec) and spec.texts else None
    return {
        "templates": spec.templates or "photo",
        "texts": texts or name_classes(dataset.classes, spec.class_names),
    }


def _resolve_augment(spec: RunSpec, dataset: DomainDataset) -> dict[str, str]:
    """Resolve the augmentation: empty for that of the dataset, which records of earlier versions have."""
    inputs, given = dataset.domains[0].inputs, spec.augment
    if given in ("", inputs.augmentation):
        return {"augment": "", "augment_code": inputs.augment_code}
    if spec.on_activations:
        raise bad_value("augment", "left out with --frozen and --views: augmented views are DomainBed's", given)
    if given == "domainbed":
        raise bad_value("augment", f"flips, none or module:function for {dataset.name}: it has no image files", given)
    if given == "flips" and len(dataset.input_shape) != 3:
        raise bad_value("augment", f"none or module:function for {dataset.name}: only images can be flipped", given)
    find_transform(given)  # raises an error if there is none
    return {"augment": given, "augment_code": digest_transform(given)}


def _standardises(spec: RunSpec, dataset: DomainDataset) -> bool:
    """Say whether samples are standardised by default: features, signals, and images far from the scale [0, 1]."""
    if dataset.kind != "small_images":
        return spec.frozen or dataset.kind != "images"
    # A few samples of each domain: others may have to be read from a disk.
    few = [np.linspace(0, len(domain) - 1, 16).astype(np.int64) for domain in dataset.domains]
    return any(domain.inputs.clean(rows).abs().max() > LARGEST for domain, rows in zip(dataset.domains, few))


def _resolve_network(spec: RunSpec, dataset: DomainDataset, rules: Rules, base: Defaults) -> dict[str, Any]:
    """Resolve the backbone with the tag of its weights, its initialisation, and the normalisation of its inputs."""
    usual = rules.backbone if rules.backbone and dataset.kind == "images" and not spec.frozen else base.backbone
    name = spec.backbone or (rules.mlp if base.backbone == "mlp" else usual)
    own, pretrained = name in OWN_BACKBONES, spec.pretrained
    registered = None if own else find_backbone(name)
    if pretrained is None:  # a name with a tag stands for published weights
        tagged_by_user = "." in name and not registered
        pretrained = not spec.weights and (spec.frozen or (tagged_by_user if spec.backbone else base.pretrained))
    if spec.frozen and not spec.weights and (not pretrained or own):
        raise UserError(
            f"Expected a backbone with pre-trained weights for --frozen. Found {name} with random weights. Give "
            "--weights FILE, or choose a pre-trained one: `fgmix list backbones`."
        )
    if pretrained and spec.weights:
        raise UserError(
            f"Expected --pretrained or --weights, one of them. Found both (weights {spec.weights}). Drop one."
        )
    if pretrained:
        check_pretrained(name)
    tagged = name
    if (pretrained or spec.weights) and "." not in name:  # the protocol's tag, or timm's default
        tagged = f"{name}.{rules.tags[name]}" if name in rules.tags else full_name(name)
    frozen = rules.freeze_bn and (pretrained or bool(spec.weights))
    # A file does not say what its weights were trained on, nor their activation function: a tag that is given does.
    given = name if spec.weights or own else model_of(name)
    network: dict[str, Any] = {
        "backbone": tagged if pretrained or registered else given,
        "backbone_digest": digest_backbone(name) if registered else "",
        "pretrained": pretrained,
        "freeze_bn": (frozen if spec.freeze_bn is None else spec.freeze_bn) or spec.lora > 0,
        "weights_digest": "",  # of weights from a hub
    }
    if spec.weights:
        network["weights_digest"] = _digest_file(spec.weights)
    elif pretrained and tagged in PACKAGES:
        network["weights_digest"] = _digest_file(str(packaged_weights(tagged)))
    if spec.frozen:
        network["code_size"] = _measure_codes(name, dataset.input_shape)
    if dataset.kind == "images":
        expects = not own and (pretrained or spec.weights or registered or is_clip(name))
        expected = normalisation_of(tagged) if expects else IMAGENET
        interpolation = rules.interpolation or expected.interpolation
        network |= {"mean": expected.mean, "std": expected.std, "interpolation": interpolation}
    elif dataset.kind == "small_images" and (
        registered.mean if registered else tagged not in OWN_BACKBONES and (pretrained or spec.weights)
    ):
        network |= {} if spec.standardize else _normalise_within(tagged, dataset)
    return network


def _normalise_within(backbone: str, dataset: DomainDataset) -> dict[str, Any]:
    """Return the normalisation that pre-trained weights expect, done within the network for images in arrays."""
    expected, shape = normalisation_of(backbone), dataset.input_shape
    ranges = [domain.inputs.value_range for domain in dataset.domains]
    low, high = min(least for least, _ in ranges), max(most for _, most in ranges)
    if len(shape) != 3 or shape[0] != len(expected.mean) or low < 0 or high > 1:
        raise UserError(
            f"Expected images of {len(expected.mean)} channels, as uint8 or as floats in [0, 1], for {backbone}, which "
            f"expects them normalised. Found arrays {shape} with values from {low:g} to {high:g}. Rescale them, or "
            "pass --standardize."
        )
    return {"mean": expected.mean, "std": expected.std}


@lru_cache(maxsize=8)  # a sweep resolves thousands of runs that share one backbone
def _measure_codes(backbone: str, input_shape: tuple[int, ...]) -> int:
    return build_featurizer(backbone, input_shape).out_features


@lru_cache(maxsize=8)  # a sweep resolves thousands of runs that share one file
def _digest_file(path: str) -> str:
    return fingerprint_of([read_bytes(Path(path).expanduser())])
