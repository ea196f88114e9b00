"""Heads whose weights are embeddings of prompts with learned vectors in place of words."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from fgmix.networks.clip import TextTower
from fgmix.networks.parts import change_output

SPREAD = 0.02  # standard deviation of initial vectors, as of CLIP's own token embeddings


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
