"""Models of open_clip: an image tower as a backbone, `open_clip:ViT-B-16.openai`, and its text tower.

Needs the extra `[clip]`. open_clip is imported only where a model is named: the import takes a second.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fgmix.errors import MachineError, UserError, require_package, unknown
from fgmix.networks._weights import find_cached_file, require_answer
from fgmix.networks.registry import OPEN_CLIP

HUB_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")  # what open_clip looks for by default


def split_clip_name(name: str) -> tuple[str, str]:
    """Split a name into open_clip's model and the tag of its weights, which may be empty.

    >>> split_clip_name("open_clip:ViT-B-16.openai")
    ('ViT-B-16', 'openai')
    """
    model, _, tag = name.removeprefix(OPEN_CLIP).partition(".")
    return model, tag


def build_clip(
    name: str, image_size: int | None = None, *, pretrained: bool = False, weights: str | None = None
) -> nn.Module:
    """Build a model with both towers, for square images of a side; by default of the side that it was trained on.

    Args:
        name: `open_clip:MODEL` or `open_clip:MODEL.TAG`. The tag also selects the activation function, on which
            models with one architecture differ.
        image_size: side of the images; position embeddings of a file are interpolated.
        pretrained: download the weights of the tag, or take them from Hugging Face's cache.
        weights: a file with the weights of both towers.
    """
    open_clip, model = load_open_clip(), split_clip_name(name)[0]
    cfg = describe_weights(name)
    file = weights or (_fetch_weights(name, cfg) if pretrained else None)
    try:
        with _silence():
            net: nn.Module = open_clip.create_model(
                model,
                force_quick_gelu=bool(cfg.get("quick_gelu")),
                force_image_size=image_size,
                pretrained_text=False,
            )
            if file is not None:
                open_clip.load_checkpoint(net, os.path.expanduser(file))
    except Exception as error:  # open_clip and torch raise many kinds
        found = f"the weights of {file}" if file else "random weights"
        raise UserError(
            f"Expected to build {name} with {found}. open_clip cannot ({_first_line(error)}). Use a file of this "
            "model with both towers, another model or another image size."
        ) from error
    broken = [key for key, value in net.state_dict().items() if not value.isfinite().all()]
    if broken:
        raise UserError(f"Expected finite numbers in {file}. Found others in {broken[0]}. Download it again.")
    return net


def build_image_tower(
    name: str, image_size: int, *, pretrained: bool = False, weights: str | None = None
) -> tuple[nn.Module, int]:
    """Build the image tower of a model, and return the width of its codes, which texts share."""
    model: Any = build_clip(name, image_size, pretrained=pretrained, weights=weights)
    tower: nn.Module = model.visual
    if getattr(tower, "output_tokens", False):  # CoCa's tower also returns tokens, for its captions
        tower.output_tokens = False  # type: ignore[assignment]
    return tower, get_config(name)["embed_dim"]


def describe_weights(name: str) -> dict[str, Any]:
    """Return open_clip's description of the weights of a tag: mean, std, interpolation, …; empty without a tag."""
    open_clip, (model, tag) = load_open_clip(), split_clip_name(name)
    get_config(name)  # raises an error if there is no such model
    if not tag:
        return {}
    tags = open_clip.list_pretrained_tags_by_model(model)
    if tag not in tags:
        raise unknown(f"tag of {OPEN_CLIP}{model}", tag, tags)
    cfg: dict[str, Any] = open_clip.get_pretrained_cfg(model, tag)
    return cfg


def get_config(name: str) -> dict[str, Any]:
    """Return open_clip's configuration of a model."""
    open_clip, (model, _) = load_open_clip(), split_clip_name(name)
    config: dict[str, Any] | None = open_clip.get_model_config(model) if model in open_clip.list_models() else None
    if config is None:
        raise unknown("open_clip model", model, open_clip.list_models())
    return config


def get_image_size(name: str) -> int:
    """Return the side of the square images of a model."""
    size = get_config(name)["vision_cfg"].get("image_size", 224)
    return int(size if isinstance(size, int) else size[0])


def list_clip_names() -> list[str]:
    """List the models of open_clip, each followed by its names with the tags of published weights."""
    open_clip, tags = load_open_clip(), dict[str, list[str]]()
    for model, tag in open_clip.list_pretrained():
        tags.setdefault(model, []).append(tag)
    models = open_clip.list_models()
    return [f"{OPEN_CLIP}{model}{tag}" for model in models for tag in ("", *(f".{t}" for t in tags.get(model, ())))]


def load_open_clip() -> Any:
    """Import open_clip, only when needed because the import takes a second."""
    from fgmix.networks._torchvision import ensure_torchvision

    ensure_torchvision()
    require_package("open_clip", "clip")
    import open_clip

    return open_clip


class TextTower(nn.Module):
    """The text tower of a CLIP model, frozen: tokens (n, L) → embeddings (n, d) of norm 1.

    Args:
        model: a model of open_clip, whose image tower is dropped.
        tokenizer: the one that belongs to it.

    `scale` is 1/τ, by which cosines are multiplied, and `embedding` the layer of its token embeddings.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        super().__init__()
        self.scale = float(model.logit_scale.detach().exp())
        self._tokenizer = tokenizer
        del model.visual
        self.model = model.requires_grad_(False).eval()

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        """Turn texts into token numbers (n, L)."""
        tokens: Tensor = self._tokenizer(list(texts))
        return tokens

    @property
    def embedding(self) -> nn.Embedding:
        """The layer that turns token numbers into vectors."""
        text = getattr(self.model, "text", self.model)
        layer = getattr(text, "token_embedding", None)
        if not isinstance(layer, nn.Embedding):
            raise UserError(
                "Expected a text tower of open_clip's own, whose prompts can be learned. Found one of another library. "
                "Use a model such as open_clip:ViT-B-16."
            )
        return layer

    def forward(self, tokens: Tensor) -> Tensor:
        embeddings: Tensor = self.model.encode_text(tokens, normalize=True)
        return embeddings


def build_text_tower(name: str, *, pretrained: bool = False, weights: str | None = None) -> TextTower:
    """Build the text tower of a model; the arguments are those of `build_clip`."""
    model = build_clip(name, pretrained=pretrained, weights=weights)
    return TextTower(model, load_open_clip().get_tokenizer(split_clip_name(name)[0]))


def _fetch_weights(name: str, cfg: dict[str, Any]) -> str:
    """Return the file with the weights of a tag: one that was downloaded before, or from the hub."""
    if not cfg:
        tags = load_open_clip().list_pretrained_tags_by_model(split_clip_name(name)[0])
        hint = f"Choose a tag, such as {name}.{tags[0]}." if tags else "Pass a file with --weights PATH."
        raise UserError(f"Expected the tag of published weights after {name}. Found none. {hint}")
    repository, _, file = cfg.get("hf_hub", "").rpartition("/")
    names = [str(Path(file).with_suffix(".safetensors")), file] if file else HUB_FILES
    if cached := find_cached_file(repository, names):
        return str(cached)
    require_answer(name, repository, cfg.get("url"))
    try:
        path: str = load_open_clip().download_pretrained(cfg)
    except Exception as error:  # of several libraries
        raise MachineError(
            f"Expected to download the weights of {name}. It failed ({_first_line(error)}). Run it again, or pass a "
            "file with --weights PATH."
        ) from error
    return path


@contextmanager
def _silence() -> Iterator[None]:
    """Suppress open_clip's warnings, which are about random weights, within the block: runs note them themselves."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
