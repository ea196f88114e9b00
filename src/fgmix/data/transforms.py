"""Other augmentations than that of the data: none, flips, or a function of the user's.

A transform gets a batch as the network would get it, floats (n, …) that are normalised or standardised, and a
torch.Generator, the only source of its random numbers. Samples that are evaluated are not transformed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fgmix.data.dataset import DomainDataset, HostArray, HostInputs, Indices, Inputs
from fgmix.errors import UserError, unknown
from fgmix.records.source import digest_modules

if TYPE_CHECKING:
    from fgmix.networks.preprocessing import Normalisation

Transform = Callable[[Tensor, torch.Generator], Tensor]


def keep(x: Tensor, _: torch.Generator) -> Tensor:
    """Return the samples as they are."""
    return x


def flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror half of the images (n, c, h, w), chosen at random."""
    mirrored = torch.rand(len(x), generator=generator) < 0.5
    return torch.where(mirrored.view(-1, 1, 1, 1), x.flip(-1), x)


TRANSFORMS: dict[str, Transform] = {"none": keep, "flips": flip}
NAMES = ("domainbed", *TRANSFORMS)


@dataclass(frozen=True)
class TransformedInputs(Inputs):
    """Samples of a domain that are transformed in training, instead of augmented in their own way."""

    inputs: Inputs
    transform: Transform

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def value_range(self) -> tuple[float, float]:
        return self.inputs.value_range

    def prepare(self, indices: Indices, generator: torch.Generator | None = None) -> HostInputs:
        clean = self.inputs.prepare(indices)
        if generator is None or self.transform is keep:
            return clean
        x = clean.finish()
        result: object = self.transform(x.clone(), generator)
        if not isinstance(result, Tensor) or result.shape != x.shape or result.dtype != x.dtype:
            found = f"{tuple(result.shape)} of {result.dtype}" if isinstance(result, Tensor) else type(result).__name__
            raise UserError(
                f"Expected samples {tuple(x.shape)} of {x.dtype} from the augmentation. Found {found}. Correct it."
            )
        return HostArray(result)

    def normalise(self, normalisation: Normalisation) -> TransformedInputs:
        return replace(self, inputs=self.inputs.normalise(normalisation))


def transform_dataset(dataset: DomainDataset, augment: str) -> DomainDataset:
    """Transform the samples of a dataset in training; `augment` names the transform."""
    transform = find_transform(augment)
    domains = (replace(each, inputs=TransformedInputs(each.inputs, transform)) for each in dataset.domains)
    return replace(dataset, domains=tuple(domains))


@cache
def find_transform(name: str) -> Transform:
    """Find a transform by its name, or import it as `module:function`."""
    if name in TRANSFORMS:
        return TRANSFORMS[name]
    module, _, function = name.partition(":")
    if not function:
        raise unknown("augmentation", name, NAMES)
    try:
        transform: Transform = getattr(import_module(module), function)
    except Exception as error:  # the module may raise anything
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(
            f"Expected a function that augments samples, as module:function. {name} cannot be imported ({reason}). "
            "Install its package, or pass its file with --plugin FILE."
        ) from error
    return transform


def digest_transform(name: str) -> str:
    """Compute the digest of the code of a user's transform; empty for our own, and without source."""
    return "" if name in NAMES else digest_modules([find_transform(name).__module__])
