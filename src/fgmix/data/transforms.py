"""Other augmentations than that of the data: none, flips, or a function of the user's.

A transform gets a batch as the network would get it, floats (n, …) that are normalised or standardised, and a
torch.Generator, the only source of its random numbers. Samples that are evaluated are not transformed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fgmix.data.dataset import DomainDataset, HostArray, HostInputs, Indices, Inputs
from fgmix.errors import UserError, unknown
from fgmix.records.code import digest_modules, import_function
from fgmix.records.digests import digest_of

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
DRAWS = 8  # of a dataset's transform, by which it is recognised


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
        return HostArray(check_result(self.transform(x.clone(), generator), x))

    def normalise(self, normalisation: Normalisation) -> TransformedInputs:
        return replace(self, inputs=self.inputs.normalise(normalisation))


def transform_dataset(dataset: DomainDataset, augment: str) -> DomainDataset:
    """Transform the samples of a dataset in training; `augment` names the transform."""
    transform = find_transform(augment)
    domains = [replace(each, inputs=TransformedInputs(each.inputs, transform)) for each in dataset.domains]
    if augment not in TRANSFORMS:
        with forbid_global_generators("an augmentation"):  # tried on a sample
            domains[0].inputs.prepare(np.zeros(1, np.int64), torch.Generator().manual_seed(0))
    return replace(dataset, domains=tuple(domains))


def check_result(result: object, x: Tensor) -> Tensor:
    """Return what a user's function made of samples x; UserError unless it is a tensor of their shape and type."""
    if isinstance(result, Tensor) and (result.shape, result.dtype) == (x.shape, x.dtype):
        return result
    found = f"{tuple(result.shape)} of {result.dtype}" if isinstance(result, Tensor) else type(result).__name__
    raise UserError(f"Expected the shape {tuple(x.shape)} of {x.dtype} from the augmentation. Found {found}.")


@contextmanager
def forbid_global_generators(what: str) -> Iterator[None]:
    """Raise an error if global random numbers are drawn within the block: such a run could not be resumed exactly."""
    before = _state_of_generators()
    yield
    if _state_of_generators() != before:
        raise UserError(
            f"Expected {what} whose random numbers come from its second argument, a torch.Generator. Found one that "
            "uses global ones: a run could not be resumed exactly. Pass the generator to torch."
        )


def _state_of_generators() -> tuple[Any, ...]:
    return random.getstate(), repr(np.random.get_state()), torch.get_rng_state().numpy().tobytes()  # noqa: NPY002


@cache
def find_transform(name: str) -> Transform:
    """Find a transform by its name, or import it as `module:function`."""
    if name in TRANSFORMS:
        return TRANSFORMS[name]
    if ":" not in name:
        raise unknown("augmentation", name, NAMES)
    transform: Transform = import_function(name, "augments samples")
    return transform


def digest_transform(name: str) -> str:
    """Compute the digest of the code of a user's transform; empty for our own, and without source."""
    return "" if name in NAMES else digest_modules([find_transform(name).__module__])


def digest_outcome(transform: Transform, x: Tensor) -> str:
    """Compute a digest of what a transform makes of one sample x, in some draws.

    Unlike the source, it tells closures and objects of one class apart. Lengths along a direction at random, to three
    digits, do not depend on the last bits, which differ between machines.
    """
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(x.shape, generator=generator, dtype=torch.float64)
    drawn = [transform(x.clone(), generator).double() for _ in range(DRAWS)]
    return digest_of(repr([f"{(each * direction).sum().item():.3g}" for each in drawn]).encode())[:12]
