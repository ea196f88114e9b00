"""The dataset class: named domains with shared, named classes, an input shape and a fingerprint; joined datasets.

Lists of images whose accuracy is reported apart, such as DomainBed-IP and DomainBed-OOP, are those of Teterwak et al.,
"Is Large-Scale Pretraining the Secret to Good Domain Generalization?", 2025, https://arxiv.org/abs/2412.02856.
"""

from __future__ import annotations

import hashlib
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fgmix.errors import UserError, unknown
from fgmix.records.columns import Column
from fgmix.records.files import read_bytes
from fgmix.records.protocols import Kind

if TYPE_CHECKING:
    from fgmix.data.standardisation import Standardisation
    from fgmix.networks.preprocessing import Normalisation

Indices = npt.NDArray[np.int64]
SCALED = (np.uint8, np.uint16)  # types of images whose values are scaled from 0…255 or 0…65535 to [0, 1]


class HostInputs(ABC):
    """Samples prepared on the host: stored values and the parameters of random transformations.

    `finish` does the rest on the device of the tensors, without synchronising with it.
    """

    @abstractmethod
    def move(self, move: Callable[[Tensor], Tensor]) -> Self:
        """Move every tensor to page-locked memory or to a device."""

    @abstractmethod
    def finish(self) -> Tensor:
        """Compute the inputs of a network, floats (n, *input_shape)."""

    @classmethod
    @abstractmethod
    def join(cls, batches: Sequence[Self]) -> Self:
        """Concatenate samples: a few large calls keep a GPU busier than many small ones."""


class Inputs(ABC):
    """The samples of one domain, in memory or in files."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def prepare(self, indices: Indices, generator: torch.Generator | None = None) -> HostInputs:
        """Prepare samples on the host, randomly transformed by `generator` or clean without one."""

    def clean(self, indices: Indices) -> Tensor:
        """Return samples for evaluation, (n, *input_shape)."""
        return self.prepare(indices).finish()

    @property
    def at_hand(self) -> bool:
        """Whether preparing samples takes less time than handing them over to another thread."""
        return False

    @property
    def augmentation(self) -> str:
        """How samples are augmented in training by default."""
        return "none"

    @property
    def augment_code(self) -> str:
        """A digest of how they are, if that is the dataset's own."""
        return ""

    @property
    def value_range(self) -> tuple[float, float]:
        """The smallest and the largest value of clean samples before normalisation."""
        return 0.0, 1.0

    def normalise(self, normalisation: Normalisation) -> Self:  # noqa: ARG002 (only stored images are normalised)
        """Normalise images as a network's weights expect; arrays are not changed."""
        return self


AT_HAND = 2**26  # bytes of rows of an array in memory that may be kept twice, as they are and standardised


@dataclass(frozen=True)
class HostArray(HostInputs):
    """Rows of an array, as stored."""

    x: Tensor

    def move(self, move: Callable[[Tensor], Tensor]) -> HostArray:
        return HostArray(move(self.x))

    def finish(self) -> Tensor:
        x = self.x.float()
        return x.div_(torch.iinfo(self.x.dtype).max) if self.x.dtype in (torch.uint8, torch.uint16) else x

    @classmethod
    def join(cls, batches: Sequence[HostArray]) -> HostArray:
        return cls(torch.cat([batch.x for batch in batches]))


@dataclass(frozen=True)
class ArrayInputs(Inputs):
    """Samples in memory (or memory-mapped): float features or images unchanged, types in `SCALED` scaled to [0, 1]."""

    x: npt.NDArray[Any]
    standard: Standardisation | None = None  # applied when samples are read

    def __len__(self) -> int:
        return len(self.x)

    @property
    def at_hand(self) -> bool:
        return type(self.x) is np.ndarray and self.x.ndim == 2 and self.x.nbytes <= AT_HAND

    @cached_property
    def _rows(self) -> npt.NDArray[Any]:
        """The samples as a network gets them: standardised at once if that takes little memory."""
        return self.x if self.standard is None else self.standard(self.x)

    @cached_property  # runs of a sweep share a loaded dataset
    def value_range(self) -> tuple[float, float]:
        return (0.0, 1.0) if self.x.dtype in SCALED else (float(self.x.min()), float(self.x.max()))

    def prepare(self, indices: Indices, generator: torch.Generator | None = None) -> HostArray:  # noqa: ARG002
        if self.at_hand:
            return HostArray(torch.from_numpy(self._rows[indices]))
        rows = self.x[indices] if self.standard is None else self.standard(self.x[indices])
        return HostArray(torch.from_numpy(np.ascontiguousarray(rows)))


class TableInputs(ArrayInputs):
    """Rows of a table: NaN is a missing number. Standardisation replaces it, and drops what is constant in training."""


@dataclass(frozen=True)
class Domain:
    """One domain: its samples and their labels."""

    name: str
    inputs: Inputs
    y: Indices  # indices into the dataset's classes
    holdout: npt.NDArray[np.bool_] | None = None  # the samples in the holdout part; None for a random split
    weights: npt.NDArray[np.float64] | None = None  # of the samples in training, relative; None for equal ones
    soft: npt.NDArray[np.float32] | None = None  # probabilities (n, C) of the classes, y the most probable; None: y
    groups: Indices | None = None  # numbers of the groups, such as patients, none of which a split divides
    files: tuple[str, ...] | None = None  # of each sample, as domain/class/file; None for arrays

    def __len__(self) -> int:
        return len(self.y)

    def target(self, indices: Indices, n_classes: int) -> npt.NDArray[np.float32]:
        """Return the probabilities (n, C) of the classes of samples, one-hot where they are certain."""
        return np.eye(n_classes, dtype=np.float32)[self.y[indices]] if self.soft is None else self.soft[indices]


@dataclass(frozen=True)
class DomainDataset:
    """A dataset of several domains with the same classes."""

    name: str  # registered, or that of the folder or file
    domains: tuple[Domain, ...]  # in the order of their numbers (sorted by name for folders), on which splits depend
    classes: tuple[str, ...]  # names, which labels index; a domain may lack some
    input_shape: tuple[int, ...]  # of a network's inputs: (c, h, w), (c, t) or (f,)
    kind: Kind  # what a sample is; defaults depend on it
    fingerprint: str  # digest of everything that training uses
    notes: tuple[str, ...] = ()  # for the user, such as counts that differ from the official ones, or files left out
    columns: tuple[Column, ...] = ()  # of a table, which its features encode
    window: str = ""  # in which grey values of more than 8 bits are shown; empty if no image has them
    group_names: tuple[str, ...] = ()  # which the groups of domains index

    def __post_init__(self) -> None:
        for what, names in (("Domain", self.domain_names), ("Class", self.classes)):
            if len(set(names)) != len(names):
                raise UserError(f"{what} names should differ. Found {', '.join(names)}.")
            for name in names:
                if name.encode(errors="replace").decode() != name:
                    raise UserError(f"{what} names should be valid UTF-8. Found {name!r}. Rename it.")
                if not name.strip() or any(unicodedata.category(letter) == "Cc" for letter in name):
                    raise UserError(f"{what} names should be printable and not blank. Found {name!r}. Rename it.")
        for domain in self.domains:
            if len(domain) == 0:
                raise UserError(f"Domain {domain.name!r} of {self.name} holds no sample. Remove it or fill it.")

    @property
    def domain_names(self) -> tuple[str, ...]:
        return tuple(domain.name for domain in self.domains)

    def normalise(self, normalisation: Normalisation) -> DomainDataset:
        """Normalise the images as a network's weights expect; arrays are not changed."""
        domains = (replace(domain, inputs=domain.inputs.normalise(normalisation)) for domain in self.domains)
        return replace(self, domains=tuple(domains))

    def index(self, name: str) -> int:
        """Return the number of the domain called `name`."""
        if name not in self.domain_names:
            raise unknown(f"domain of {self.name}", name, self.domain_names)
        return self.domain_names.index(name)


@dataclass(frozen=True)
class ArrayParts:
    """An array that is read in parts, along its first axis."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of the whole
    parts: Iterable[npt.NDArray[Any]]


def fingerprint_of(parts: Iterable[bytes | str | npt.NDArray[Any] | ArrayParts]) -> str:
    """Compute a digest (32 hex digits) of texts, bytes and arrays, each with its type, shape and length.

    >>> fingerprint_of(["a", "bc"]) == fingerprint_of(["ab", "c"])
    False
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray | ArrayParts):
            digest.update(f"array {part.dtype.str} {part.shape}:".encode())
            for each in [part] if isinstance(part, np.ndarray) else part.parts:
                digest.update(np.ascontiguousarray(each).data)
        else:
            try:
                data = part.encode(errors="surrogateescape") if isinstance(part, str) else part  # paths: any byte
            except UnicodeEncodeError as error:  # half of a surrogate pair
                raise UserError(f"Expected texts that can be written in UTF-8. Found {part!r}. Rename it.") from error
            digest.update(f"bytes {len(data)}:".encode())
            digest.update(data)
    return digest.hexdigest()


GROUPED = "groups held out in one order"  # in the fingerprint of data with groups: other splits are other data


def join_datasets(first: DomainDataset, second: DomainDataset) -> DomainDataset:
    """Join the domains of two datasets of one kind; classes and groups are matched by name.

    Args:
        first: gives the name.
        second: its domains follow.

    Example:
        >>> from fgmix.data import from_arrays
        >>> a = from_arrays(np.zeros((2, 3)), ["cat", "dog"], ["north", "north"])
        >>> b = from_arrays(np.ones((2, 3)), ["dog", "eel"], ["south", "south"])
        >>> joined = join_datasets(a, b)
        >>> joined.domain_names, joined.classes, joined.domains[1].y.tolist()
        (('north', 'south'), ('cat', 'dog', 'eel'), [1, 2])
    """
    for what in ("kind", "input_shape", "window", "columns"):
        if getattr(first, what) != getattr(second, what):
            raise UserError(
                f"Expected data that are prepared alike. Found {what} {getattr(first, what)} in {first.name} and "
                f"{getattr(second, what)} in {second.name}."
            )
    check_new_domains(first, second)
    classes = tuple(sorted({*first.classes, *second.classes}))
    groups = tuple(dict.fromkeys((*_name_groups(first), *_name_groups(second))))
    domains = [*_number(first, classes, groups), *_number(second, classes, groups)]
    return replace(
        first,
        domains=tuple(_unify(domains)),
        classes=classes,
        fingerprint=fingerprint_of(["joined", first.fingerprint, second.fingerprint]),
        notes=tuple(dict.fromkeys((*first.notes, *second.notes))),
        group_names=groups,
    )


def check_new_domains(first: DomainDataset, second: DomainDataset) -> None:
    """Raise an error if a domain of the second dataset is in the first."""
    if shared := sorted({*first.domain_names} & {*second.domain_names}):
        raise UserError(f"Expected new domains. Found {', '.join(shared)} in both. Rename them.")


def _number(dataset: DomainDataset, classes: Sequence[str], groups: Sequence[str]) -> list[Domain]:
    """Return the domains with labels and groups numbered as in the joined classes and groups."""
    numbers = np.array([classes.index(name) for name in dataset.classes])
    place = {name: number for number, name in enumerate(groups)}
    group_of = np.array([place[name] for name in _name_groups(dataset)], np.int64)
    columns = np.eye(len(classes), dtype=np.float32)[numbers]  # (C, joined C)
    return [
        replace(
            each,
            y=numbers[each.y],
            soft=None if each.soft is None else each.soft @ columns,
            groups=None if each.groups is None else group_of[each.groups],
        )
        for each in dataset.domains
    ]


def _name_groups(dataset: DomainDataset) -> Sequence[str]:
    """Return the names of the groups; numbers of a dataset without names mean nothing in another one."""
    last = max((int(each.groups.max()) for each in dataset.domains if each.groups is not None), default=-1)
    return dataset.group_names or [f"{number} of {dataset.fingerprint}" for number in range(last + 1)]


def _unify(domains: Sequence[Domain]) -> list[Domain]:
    """Store arrays of all domains in one type: one that loses no digit."""
    kinds = {each.inputs.x.dtype for each in domains if isinstance(each.inputs, ArrayInputs)}
    if len(kinds) < 2:
        return list(domains)
    if any(kind.kind != "f" for kind in kinds):
        raise UserError(f"Expected values of one type. Found {', '.join(sorted(map(str, kinds)))}.")
    widest = np.result_type(*kinds)
    return [
        replace(each, inputs=replace(each.inputs, x=each.inputs.x.astype(widest)))
        for each in domains
        if isinstance(each.inputs, ArrayInputs)
    ]


Listed = Mapping[str, Mapping[str, npt.NDArray[np.bool_]]]  # by list and domain: which samples of the domain are in it

PARTS = 3  # of a path that identify an image: domain, class and file


def read_lists(files: str) -> dict[str, frozenset[str]]:
    """Read lists, files with a path per line, by the name of the file; a path ends in domain/class/file."""
    lists = {}
    for file in (Path(name.strip()).expanduser() for name in files.split(",")):
        try:
            lines = read_bytes(file).decode().splitlines()
        except UnicodeDecodeError as error:
            raise UserError(f"Expected a text file with a path per line at {file}. Found other bytes.") from error
        lists[file.stem] = frozenset(shorten(line.strip()) for line in lines if line.strip())
    return lists


@lru_cache(maxsize=8)  # a sweep resolves thousands of runs that share the lists
def digest_lists(files: str) -> str:
    """Compute a digest of the names and the content of lists."""
    return fingerprint_of([part for name, paths in read_lists(files).items() for part in (name, *sorted(paths))])


def find_listed(dataset: DomainDataset, files: str) -> Listed:
    """Find the samples of a dataset that are in lists; a list without any is an error."""
    found = {}
    for name, paths in read_lists(files).items():
        if any(domain.files is None for domain in dataset.domains):
            raise UserError(f"Expected images in files for the list {name}. Found arrays in {dataset.name}.")
        found[name] = {
            domain.name: np.array([file in paths for file in domain.files or ()], np.bool_)
            for domain in dataset.domains
        }
        if not any(mask.any() for mask in found[name].values()):
            raise UserError(
                f"Expected paths domain/class/file of {dataset.name} in the list {name}. Found none. Check the list."
            )
    return found


def shorten(path: str | PurePath) -> str:
    """Return the end of a path that identifies an image.

    >>> shorten("/data/PACS/sketch/dog/12.png")
    'sketch/dog/12.png'
    """
    return "/".join(PurePath(path).parts[-PARTS:])
