"""Build featurizers and classifiers by name."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from fgmix.errors import UserError, bad_value, unknown
from fgmix.networks._weights import Matched, find_cached_file, load_weights, require_answer
from fgmix.networks.clip import build_image_tower
from fgmix.networks.featurizer import Featurizer
from fgmix.networks.names import (
    PACKAGES,
    check_pretrained,
    full_name,
    is_clip,
    load_timm,
    model_of,
    packaged_weights,
    pretrained_cfg,
)
from fgmix.networks.own import MLP, Identity, MnistCNN, SignalCNN, SmallCNN
from fgmix.networks.parts import freeze_sections
from fgmix.networks.preprocessing import Normalisation
from fgmix.networks.registry import OWN_BACKBONES, build_registered, find_backbone

CLASSIFIERS = ("linear", "mlp")


def build_featurizer(
    name: str,
    input_shape: tuple[int, ...],
    *,
    pretrained: bool = False,
    weights: str | None = None,
    dropout: float = 0.0,
    freeze_bn: bool | None = None,
    freeze: int | str = 0,
    channels_last: bool = False,
    normalisation: Normalisation | None = None,
) -> Featurizer:
    """Build a featurizer g: inputs of `input_shape` → codes (n, d).

    Args:
        name: one of our own (`OWN_BACKBONES`), a registered one, `package.module:function`, or any model of timm or
            open_clip, with or without the tag of its weights (`resnet50.tv_in1k`, `open_clip:ViT-B-16.openai`).
        input_shape: (c, h, w) of images, (c, t) of signals or (f,) of features.
        pretrained: start from published weights: timm's from its hub, or those of an installed package.
        weights: start from a local file instead, matched by name, or by order if all shapes agree.
        dropout: dropout rate of the codes.
        freeze_bn: keep batch norm in evaluation mode; by default if `pretrained` or `weights` is given.
        freeze: freeze the stem and this many first sections (stages, or quarters of a transformer's blocks), or all up
            to the module of this name.
        channels_last: convert to channels-last memory format, in which CPUs convolve faster.
        normalisation: applied by the featurizer to images in [0, 1]; None if they are already normalised.

    >>> build_featurizer("small_cnn", (3, 32, 32)).out_features
    96
    """
    if not 0 <= dropout < 1:
        raise bad_value("dropout", "at least 0 and below 1", dropout)
    net, out_features, matched = _load_net(name, input_shape, pretrained, weights)
    if channels_last:
        net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        keep_layout(net)
    frozen = (pretrained or weights is not None) if freeze_bn is None else freeze_bn
    featurizer = Featurizer(net, out_features, dropout, frozen, input_shape, matched, normalisation)
    if freeze:
        freeze_sections(featurizer, freeze)
    return featurizer.train()  # frozen layers are in evaluation mode from the start


def keep_layout(net: nn.Module) -> None:
    """Make the gradient of a network's last maps channels-last, as the maps are.

    Behind a mean over pixels it has one value at all of them, and torch writes such a tensor channels-first. Batch norm
    and activation before the mean would then read two layouts at once, which takes them ten times as long in bfloat16.
    """
    for name, module in net.named_modules():
        if name.rpartition(".")[2] == "global_pool":  # as in the convolutional networks of timm
            module.register_forward_pre_hook(_keep_layout_of_maps)


def _keep_layout_of_maps(_: nn.Module, inputs: tuple[Any, ...]) -> None:
    h = inputs[0] if inputs else None
    if not isinstance(h, Tensor) or h.ndim != 4 or not h.requires_grad or torch.compiler.is_compiling():
        return  # compiled code chooses its own layouts
    if h.is_contiguous(memory_format=torch.channels_last):  # not in networks whose maps are (n, h, w, c)
        h.register_hook(lambda gradient: gradient.contiguous(memory_format=torch.channels_last))


def build_classifier(kind: str, code_size: int, n_classes: int) -> nn.Module:
    """Build a classifier h: "linear" (one Linear layer) or "mlp" (DomainBed's nonlinear head: d → d/2 → d/4 → C)."""
    if kind == "linear":
        return nn.Linear(code_size, n_classes)
    if kind == "mlp":
        d = code_size
        return nn.Sequential(
            nn.Linear(d, d // 2),
            nn.ReLU(),
            nn.Linear(d // 2, d // 4),
            nn.ReLU(),
            nn.Linear(d // 4, n_classes),
        )
    raise unknown("head", kind, CLASSIFIERS)


def _load_net(
    name: str, input_shape: tuple[int, ...], pretrained: bool, weights: str | None
) -> tuple[nn.Module, int, Matched | None]:
    """Build a network with its initial weights, the width of its codes, and how a file was matched with it."""
    if name not in OWN_BACKBONES and is_clip(name):
        if len(input_shape) != 3 or input_shape[0] != 3:
            raise UserError(f"Backbone {name} expects images of 3 channels. Found samples of shape {input_shape}.")
        net, width = build_image_tower(name, input_shape[-1], pretrained=pretrained, weights=weights)
        return net, width, "by name" if weights else None
    file = weights or (packaged_weights(name) if pretrained and name in PACKAGES else None)
    net, width = _build_net(name, input_shape, pretrained and file is None)
    return net, width, load_weights(net, file) if file is not None else None


def _build_net(name: str, input_shape: tuple[int, ...], pretrained: bool) -> tuple[nn.Module, int]:
    if pretrained:
        check_pretrained(name)
    if name not in OWN_BACKBONES and (registered := find_backbone(name)):
        return build_registered(name, registered, input_shape, pretrained)
    if name in ("identity", "mlp", "domainbed_mlp"):
        size = math.prod(input_shape)
        array_net = Identity(size) if name == "identity" else MLP(size, third=name == "domainbed_mlp")
        return array_net, array_net.out_features
    axes = ("channels", "time") if name == "signal_cnn" else ("channels", "height", "width")
    if len(input_shape) != len(axes):
        if name not in OWN_BACKBONES:
            full_name(name)  # raises an error if the name is unknown
        fitting = {1: "`mlp` or `identity`", 2: "`signal_cnn`"}.get(len(input_shape), "`small_cnn`")
        raise UserError(
            f"Backbone {name} expects samples ({', '.join(axes)}). Found samples of shape {input_shape}. Use {fitting}."
        )
    if name == "signal_cnn":
        return SignalCNN(input_shape[0]), SignalCNN.out_features
    if name in ("small_cnn", "mnist_cnn"):
        cnn = (SmallCNN if name == "small_cnn" else MnistCNN)(input_shape[0])
        return cnn, cnn.out_features
    return _build_timm(name, input_shape, pretrained)


def _build_timm(name: str, input_shape: tuple[int, ...], pretrained: bool) -> tuple[nn.Module, int]:
    """Build a model without its classifier, for images (c, h, w), and the width of its codes."""
    cfg = pretrained_cfg(name)  # raises an error for an unknown tag, even if no weights are loaded
    options = {} if input_shape[0] == 3 else {"in_chans": input_shape[0]}
    if cfg.fixed_input_size:  # vision transformers are built for one image size
        options["img_size"] = input_shape[-1]
    if pretrained:
        net = _create(name, input_shape, pretrained=True, **_source(name, cfg), **options)
    else:
        net = _create(model_of(name), input_shape, **options)
    # Some heads have further layers before the classifier, so that codes are wider than the last maps.
    return net, int(getattr(net, "head_hidden_size", net.num_features))  # type: ignore[arg-type]


def _create(name: str, input_shape: tuple[int, ...], **options: Any) -> nn.Module:
    try:
        net: nn.Module = load_timm().create_model(name, num_classes=0, **options)
    except Exception as error:
        weights = "pre-trained" if "pretrained" in options else "random"
        advice = " Download its weights again or pass a file with --weights PATH." if "pretrained" in options else ""
        raise UserError(
            f"Expected to build {name} with {weights} weights for images of shape {input_shape}. timm cannot build it "
            f"({type(error).__name__}: {error}). Use another backbone or another image size.{advice}"
        ) from error
    for module in list(net.modules()):  # some heads (InceptionNeXt's) keep a classifier of 0 classes: no codes
        for child, layer in module.named_children():
            if isinstance(layer, nn.Linear) and layer.out_features == 0:
                setattr(module, child, nn.Identity())
    return net


def _source(name: str, cfg: Any) -> dict[str, Any]:
    """Return options of timm that give the source of the weights: a file that was downloaded before, else the hub."""
    if not cfg.has_weights:
        raise UserError(
            f"Expected a model of which timm has pre-trained weights. Found {name}, of which it has none. "
            "Pass a file with --weights PATH, or omit --pretrained."
        )
    repository, _, revision = (cfg.hf_hub_id or "").partition("@")
    files = [cfg.hf_hub_filename] if cfg.hf_hub_filename else ["model.safetensors", "pytorch_model.bin"]
    cached = find_cached_file(repository, files, revision or None)
    if cached is not None:
        return {"pretrained_cfg_overlay": {"file": str(cached), "custom_load": False}}
    require_answer(name, cfg.hf_hub_id, cfg.url)
    return {}
