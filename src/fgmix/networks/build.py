"""Build featurizers and classifiers by name."""

from __future__ import annotations

import math

import torch
from torch import nn

from fgmix.errors import UserError, bad_value, unknown
from fgmix.networks._timm import build_timm
from fgmix.networks._weights import Matched, load_weights
from fgmix.networks.clip import build_image_tower
from fgmix.networks.featurizer import Featurizer
from fgmix.networks.mlp import MLP, Identity
from fgmix.networks.names import OWN_BACKBONES as OWN_BACKBONES
from fgmix.networks.names import PACKAGES, check_pretrained, is_clip, packaged_weights
from fgmix.networks.names import backbones as backbones
from fgmix.networks.names import full_name as full_name
from fgmix.networks.parts import freeze_sections
from fgmix.networks.preprocessing import Normalisation
from fgmix.networks.registry import build_registered, find_backbone
from fgmix.networks.signal_cnn import SignalCNN
from fgmix.networks.small_cnn import MnistCNN, SmallCNN

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
    frozen = (pretrained or weights is not None) if freeze_bn is None else freeze_bn
    featurizer = Featurizer(net, out_features, dropout, frozen, input_shape, matched, normalisation)
    if freeze:
        freeze_sections(featurizer, freeze)
    return featurizer.train()  # frozen layers are in evaluation mode from the start


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
    if is_clip(name):
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
    if registered := find_backbone(name):
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
    return build_timm(name, input_shape, pretrained)
