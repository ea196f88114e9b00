"""Featurizers and classifiers by name."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from fgmix.errors import UserError, bad_value, unknown
from fgmix.networks._weights import load_weights
from fgmix.networks.featurizer import Featurizer
from fgmix.networks.mlp import MLP, Identity
from fgmix.networks.mnist_cnn import MnistCNN
from fgmix.networks.small_cnn import SmallCNN
from fgmix.networks.tiny_maps import use_tiny_maps

OWN_BACKBONES = ("identity", "mlp", "mnist_cnn", "small_cnn")
CLASSIFIERS = ("linear", "mlp")


def backbones(pattern: str = "*") -> list[str]:
    """Names that `build_featurizer` takes: our own, then timm's that match `pattern`."""
    return [*OWN_BACKBONES, *_timm().list_models(pattern)]


def build_featurizer(
    name: str,
    input_shape: tuple[int, ...],
    *,
    pretrained: bool = False,
    weights: str | None = None,
    dropout: float = 0.0,
    freeze_bn: bool | None = None,
    channels_last: bool = False,
) -> Featurizer:
    """A featurizer g: inputs of `input_shape` → codes (n, d).

    Args:
        name: one of our own (identity, mlp, small_cnn, mnist_cnn) or any timm model.
        input_shape: (c, h, w) of images or (f,) of features.
        pretrained: timm's published weights (from its hub).
        weights: a local weights file instead; taken by name, or by order where the shapes fit one to one.
        dropout: share of the code's numbers dropped in training.
        freeze_bn: batch-norm in evaluation mode; by default where the weights are pre-trained.
        channels_last: lay out convolution weights for channels-last inputs.

    Example:
        >>> build_featurizer("small_cnn", (3, 32, 32)).out_features
        96
    """
    if not 0 <= dropout < 1:
        raise bad_value("dropout", "at least 0 and below 1", dropout)
    net, out_features = _backbone(name, input_shape, pretrained)
    if weights is not None:
        load_weights(net, weights)
    if channels_last:
        use_tiny_maps(net)
        net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    frozen = (pretrained or weights is not None) if freeze_bn is None else freeze_bn
    return Featurizer(net, out_features, dropout, frozen)


def build_classifier(kind: str, code_size: int, n_classes: int) -> nn.Module:
    """A classifier h: "linear" (one Linear layer) or "mlp" (DomainBed's nonlinear head: d → d/2 → d/4 → C)."""
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


def _backbone(name: str, input_shape: tuple[int, ...], pretrained: bool) -> tuple[nn.Module, int]:
    if name in OWN_BACKBONES and pretrained:
        raise UserError(f"{name} has no pre-trained weights. Drop --pretrained or name a timm model.")
    if name in ("identity", "mlp"):
        array_net = (Identity if name == "identity" else MLP)(math.prod(input_shape))
        return array_net, array_net.out_features
    if len(input_shape) != 3:
        raise UserError(
            f"Backbone {name} expects images (channels, height, width). Found instances of shape {input_shape}. "
            "Take mlp or identity."
        )
    if name in ("small_cnn", "mnist_cnn"):
        cnn = (SmallCNN if name == "small_cnn" else MnistCNN)(input_shape[0])
        return cnn, cnn.out_features
    return _timm_backbone(name, input_shape, pretrained)


def _timm_backbone(name: str, input_shape: tuple[int, ...], pretrained: bool) -> tuple[nn.Module, int]:
    timm = _timm()
    if not timm.is_model(name.split(".")[0]):
        raise unknown("backbone", name, [*OWN_BACKBONES, *timm.list_models(f"*{name[:6]}*")])
    options = {} if input_shape[0] == 3 else {"in_chans": input_shape[0]}
    if getattr(timm.get_pretrained_cfg(name), "fixed_input_size", False):  # vision transformers are built for a size
        options["img_size"] = input_shape[-1]
    try:
        net = timm.create_model(name, pretrained=pretrained, num_classes=0, **options)
    except Exception as error:
        if not pretrained:
            raise UserError(
                f"Expected a backbone for images of shape {input_shape}. {name} cannot be built for them ({error})."
            ) from error
        raise UserError(
            f"Expected to fetch timm's weights of {name}. Its hub could not be reached ({type(error).__name__}). "
            "Pass a local file with --weights PATH."
        ) from error
    return net, int(net.num_features)


def _timm() -> Any:
    """timm, imported here because it takes seconds."""
    from fgmix.networks._torchvision import ensure_torchvision

    ensure_torchvision()
    import timm

    return timm
