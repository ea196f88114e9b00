"""Texts that stand for classes: names, templates, and a head whose weights are text embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from fgmix.errors import UserError
from fgmix.networks.clip import TextTower

# Sets of templates by name (`--templates`). A class's embedding is the mean over the templates of its set.
TEMPLATES = {
    "photo": ("a photo of a {}.",),
    "name": ("{}",),
    "depictions": (
        "a photo of a {}.",
        "a painting of a {}.",
        "a drawing of a {}.",
        "a sketch of a {}.",
        "a cartoon of a {}.",
        "clip art of a {}.",
        "a {} on a plain background.",
        "a {} outdoors.",
    ),
}
TEXT_HEADS = ("text", "text-frozen")


def clean_name(folder: str) -> str:
    """Turn the name of a folder into words.

    >>> clean_name("Alarm_Clock")
    'alarm clock'
    """
    return " ".join(folder.replace("_", " ").lower().split()) or folder


@torch.no_grad()
def embed_classes(tower: TextTower, names: Sequence[str], templates: Sequence[str]) -> Tensor:
    """Compute embeddings (C, d) of norm 1: of each class the mean over templates of the embeddings of its texts.

    Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", 2021, section 3.1.4,
    https://arxiv.org/abs/2103.00020.
    """
    rows = [tower(tower.tokenize([template.format(name) for template in templates])).mean(0) for name in names]
    return normalize(torch.stack(rows), dim=1)


class TextHead(nn.Linear):
    """o_c = s · cos(z, w_c): a head that compares codes with one vector per class, at first its text embedding.

    It is a `Linear` layer in its sizes and parameters only: closed forms for linear heads do not apply, and methods
    that have one use their general path.

    Args:
        embeddings: initial w (C, d).
        scale: s = 1/τ, constant.
        frozen: whether w is constant, too.

    >>> head = TextHead(torch.eye(2), scale=100.0)
    >>> head(torch.tensor([[3.0, 4.0]])).tolist()
    [[60.000003814697266, 80.0]]
    """

    scale: Tensor

    def __init__(self, embeddings: Tensor, scale: float, *, frozen: bool = False) -> None:
        C, d = embeddings.shape
        with torch.random.fork_rng(devices=[]):  # the layer's own initial weights are replaced
            super().__init__(d, C, bias=False)
        self.weight = nn.Parameter(embeddings.detach().clone(), requires_grad=not frozen)
        self.register_buffer("scale", torch.tensor(scale))

    def factors(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return s · w/‖w‖ (C, d) and z/‖z‖ (n, d), whose product are the logits."""
        return self.scale * normalize(self.weight, dim=1), normalize(z, dim=1)

    def forward(self, z: Tensor) -> Tensor:
        w, z = self.factors(z)
        return linear(z, w)


def check_text_size(embeddings: Tensor, code_size: int) -> None:
    """Raise an error for codes that cannot be compared with texts."""
    if embeddings.shape[1] != code_size:
        raise UserError(
            f"Expected codes of {embeddings.shape[1]} numbers, as wide as the text embeddings. Found {code_size}. "
            "Drop --frozen, or use --head linear."
        )
