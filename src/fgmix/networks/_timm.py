"""Networks of timm, with weights from Hugging Face's cache or hub; a hub that does not answer is reported at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from fgmix.errors import MachineError, UserError
from fgmix.networks.names import load_timm, model_of, pretrained_cfg

TIMEOUT = 5  # seconds; the hub's own library retries for a minute


def build_timm(name: str, input_shape: tuple[int, ...], pretrained: bool) -> tuple[nn.Module, int]:
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


def find_cached_file(repository: str, names: Sequence[str], revision: str | None = None) -> Path | None:
    """Return the first of the files in Hugging Face's cache; None if none was downloaded before."""
    from huggingface_hub import try_to_load_from_cache

    files = [try_to_load_from_cache(repository, name, revision=revision) for name in names if repository]
    return next((Path(file) for file in files if isinstance(file, str)), None)


def require_answer(name: str, repository: str | None, url: str | None) -> None:
    """Raise an error if the address of the weights, on the hub or elsewhere, does not answer within `TIMEOUT`."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    address = f"{constants.ENDPOINT}/{repository}" if repository else f"{url}"
    try:
        get_session().head(address, timeout=TIMEOUT)
    except Exception as error:
        raise MachineError(
            f"Expected to download the weights of {name} from {address}. It cannot be reached "
            f"({type(error).__name__}). Connect, or pass a file with --weights PATH, or copy Hugging Face's cache from "
            "a machine that has the weights and set HF_HUB_OFFLINE=1."
        ) from error
