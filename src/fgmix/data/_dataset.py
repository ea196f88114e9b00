"""What a dataset is: named domains over named classes, an input shape, a fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fgmix.errors import UserError, unknown

Indices = npt.NDArray[np.int64]
Kind = Literal["images", "small_images", "features"]  # decides the protocol's defaults: backbone, lr, batch size


class Inputs(Protocol):
    """The instances of one domain, wherever they are kept; both methods return float tensors ready for a network."""

    def __len__(self) -> int: ...

    def clean(self, indices: Indices) -> Tensor:
        """Instances as evaluation sees them, (n, *input_shape)."""

    def augmented(self, indices: Indices, generator: torch.Generator) -> Tensor:
        """Instances as training sees them: randomly transformed where the dataset augments, else as `clean`."""


@dataclass(frozen=True)
class ArrayInputs:
    """Instances in memory (or memory-mapped): float features or images as they are, uint8 images scaled to [0, 1]."""

    x: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.x)

    def clean(self, indices: Indices) -> Tensor:
        taken = torch.from_numpy(np.ascontiguousarray(self.x[indices]))
        return taken.float().div_(255) if taken.dtype == torch.uint8 else taken.float()

    def augmented(self, indices: Indices, generator: torch.Generator) -> Tensor:  # noqa: ARG002 (nothing to draw)
        return self.clean(indices)


@dataclass(frozen=True)
class Domain:
    """One domain: its name, its instances, their labels (indices into the dataset's classes)."""

    name: str
    inputs: Inputs
    y: Indices

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class DomainDataset:
    """A dataset of several domains that share their classes.

    Args:
        name: registered name, or the folder's.
        domains: in the order that numbers them (sorted by name for folders): splits depend on it.
        classes: class names; labels index them. A domain may lack some.
        input_shape: what a network sees: (c, h, w) or (f,).
        kind: images, small_images or features.
        fingerprint: a digest of everything that training can see.
        notes: what a user should be told: counts that differ from the official ones, files left out.
    """

    name: str
    domains: tuple[Domain, ...]
    classes: tuple[str, ...]
    input_shape: tuple[int, ...]
    kind: Kind
    fingerprint: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = self.domain_names
        if len(set(names)) != len(names):
            raise UserError(f"Domain names should differ. Found {', '.join(names)}.")
        if len(set(self.classes)) != len(self.classes):
            raise UserError(f"Class names should differ. Found {', '.join(self.classes)}.")
        for name in (*names, *self.classes):
            if name.encode(errors="replace").decode() != name:
                raise UserError(f"Names of domains and classes should be valid UTF-8. Found {name!r}. Rename it.")
        for domain in self.domains:
            if len(domain) == 0:
                raise UserError(f"Domain {domain.name!r} of {self.name} holds no instance. Remove it or fill it.")

    @property
    def domain_names(self) -> tuple[str, ...]:
        return tuple(domain.name for domain in self.domains)

    def index(self, name: str) -> int:
        """Number of the domain called `name`."""
        if name not in self.domain_names:
            raise unknown(f"domain of {self.name}", name, self.domain_names)
        return self.domain_names.index(name)


def fingerprint_of(parts: Iterable[bytes | str | npt.NDArray[Any]]) -> str:
    """A digest (32 hex digits) of texts, bytes and arrays, each with its type, shape and length.

    >>> fingerprint_of(["a", "bc"]) == fingerprint_of(["ab", "c"])
    False
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"array {part.dtype.str} {part.shape}:".encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            data = part.encode(errors="surrogateescape") if isinstance(part, str) else part  # paths may hold any byte
            digest.update(f"bytes {len(data)}:".encode())
            digest.update(data)
    return digest.hexdigest()
