"""Texts that stand for classes: names, templates, and heads whose weights are embeddings of texts or prompts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from fgmix.networks.clip import TextTower
from fgmix.networks.parts import change_output

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
SPREAD = 0.02  # standard deviation of initial vectors of a prompt, as of CLIP's own token embeddings


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


class PromptHead(nn.Module):
    """o_c = s · cos(z, t_c), with t_c the embedding of the prompt [v_1] … [v_M] name of class c.

    The vectors v are learned and shared by all classes; the text tower is constant. Its tensors are part of the head:
    a model is complete without the file of the pre-trained weights.

    Args:
        tower: the text tower.
        classes: names of the classes.
        length: M.
    """

    tokens: Tensor

    def __init__(self, tower: TextTower, classes: Sequence[str], length: int) -> None:
        super().__init__()
        self.tower, self.length, self.out_features = tower, length, len(classes)
        words = " ".join(["x"] * length)  # one token each, whose vectors are replaced
        self.register_buffer("tokens", tower.tokenize([f"{words} {name}." for name in classes]))
        first, second = tower.tokenize(["x", "y"])
        self.start = int((first != second).nonzero()[0])  # behind the token of the start
        self.width = tower.embedding.embedding_dim
        self._add_vectors()

    def _add_vectors(self) -> None:
        self.vectors = nn.Parameter(SPREAD * torch.randn(self.length, self.width))  # v

    def embed(self, vectors: Tensor) -> Tensor:
        """Compute t (C, d) of norm 1 for vectors v (M, w)."""
        stop = self.start + self.length

        def insert(h: Tensor) -> Tensor:
            return torch.cat([h[:, : self.start], vectors.to(h).expand(len(h), -1, -1), h[:, stop:]], 1)

        with change_output(self.tower.embedding, insert):
            t: Tensor = self.tower(self.tokens)
        return t

    def compare(self, z: Tensor, vectors: Tensor) -> Tensor:
        """Compute logits (n, C) of codes z under a prompt."""
        return self.tower.scale * linear(normalize(z, dim=1), self.embed(vectors).to(z.dtype))

    def forward(self, z: Tensor) -> Tensor:
        return self.compare(z, self.vectors)


class ConditionalPromptHead(PromptHead):
    """A `PromptHead` whose vectors are made from the codes of a batch, all of one domain: v = mean_i F(z_i).

    F is a network of three layers, d → d → d → M·w. `code_size` is d; the other arguments are those of `PromptHead`.
    """

    def __init__(self, tower: TextTower, classes: Sequence[str], length: int, code_size: int) -> None:
        self.code_size = code_size
        super().__init__(tower, classes, length)

    def _add_vectors(self) -> None:
        d, out = self.code_size, self.length * self.width
        layers = (nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, out))
        self.generator = nn.Sequential(*layers)  # F

    def forward(self, z: Tensor) -> Tensor:
        return self.compare(z, self.generator(z).mean(0).view(self.length, self.width))
