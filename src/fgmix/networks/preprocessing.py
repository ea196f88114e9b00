"""Normalisation and interpolation of images that the weights of a network expect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fgmix.networks.clip import describe_weights, get_image_size
from fgmix.networks.names import is_clip, pretrained_cfg
from fgmix.networks.registry import OWN_BACKBONES, find_backbone


@dataclass(frozen=True)
class Normalisation:
    """How images in [0, 1] are normalised and resized.

    `mean` of each colour channel is subtracted, which is then divided by `std`; `interpolation` is that of the resize.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"


OPENAI_MEAN, OPENAI_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
IMAGENET = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def normalisation_of(backbone: str) -> Normalisation:
    """Return the normalisation that the weights of a backbone expect: timm's, open_clip's, a plug-in's, or ImageNet's.

    Without a tag, its default weights are meant.

    >>> normalisation_of("vit_base_patch16_clip_224.openai").mean
    (0.48145466, 0.4578275, 0.40821073)
    """
    if registered := find_backbone(backbone):
        own = Normalisation(registered.mean, registered.std, registered.interpolation)
        return own if registered.mean else IMAGENET
    if backbone in OWN_BACKBONES:
        return IMAGENET
    if is_clip(backbone):  # OpenAI's where its tag says nothing else
        given = describe_weights(backbone)
        mean, std = (tuple(given.get(name, usual)) for name, usual in (("mean", OPENAI_MEAN), ("std", OPENAI_STD)))
        return Normalisation(mean, std, "bilinear" if given.get("interpolation") == "bilinear" else "bicubic")
    cfg = pretrained_cfg(backbone)
    return Normalisation(tuple(cfg.mean), tuple(cfg.std), "bicubic" if cfg.interpolation == "bicubic" else "bilinear")


def find_image_size(backbone: str) -> int | None:
    """Find the side of the images that a plug-in's or open_clip's backbone expects; None for any."""
    if is_clip(backbone):
        return get_image_size(backbone)
    registered = find_backbone(backbone)
    return registered.image_size if registered else None
