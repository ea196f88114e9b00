"""Datasets from Python objects: samples that are read one by one when they are used, such as those of a torch Dataset.

They give the same fingerprint, and so the same runs and records, as the same samples in arrays.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fgmix.data.arrays import check_scale, from_arrays, is_scaled, note_scale
from fgmix.data.dataset import (
    GROUPED,
    SCALED,
    ArrayInputs,
    ArrayParts,
    Domain,
    DomainDataset,
    HostArray,
    Indices,
    fingerprint_of,
)
from fgmix.data.standardisation import as_units
from fgmix.data.transforms import Transform, check_result, digest_outcome, forbid_global_generators
from fgmix.errors import UserError, bad_value
from fgmix.progress import Progress
from fgmix.records.files import cache_dir, make_folder, read_bytes, write_bytes

# Attributes of a loaded object.
OPTIONS = ("classes", "transform", "labels", "holdout", "sample_weight", "group", "fingerprint", "concurrent")


class Samples(Protocol):
    """The samples of a domain, such as a torch Dataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...  # x and its class


def from_samples(
    domains: Mapping[str, Samples],
    *,
    name: str = "samples",
    classes: Sequence[str] | None = None,
    transform: Callable[..., Tensor] | None = None,
    labels: Mapping[str, npt.ArrayLike] | None = None,
    holdout: Mapping[str, npt.ArrayLike] | None = None,
    sample_weight: Mapping[str, npt.ArrayLike] | None = None,
    group: Mapping[str, npt.ArrayLike] | None = None,
    fingerprint: str = "",
    concurrent: bool = False,
    progress: bool = False,
) -> DomainDataset:
    """Make a dataset from objects with `__len__` and `__getitem__` → (x, y), one per domain; samples are read lazily.

    Args:
        domains: the samples of every domain by its name, such as torch Datasets. Every x is an array or a tensor of one
            shape, as in `from_arrays`, in single precision; y is a class name, an integer or a soft label (C,).
        name: name of the dataset.
        classes: class names that integers index; None to use the labels as names.
        transform: augments a training sample, x ↦ x or (x, generator) ↦ x, a tensor of floats of the same shape. Its
            random numbers come from the generator alone, which depends on the run's seed, the domain and the step.
        labels: of all samples by domain; None to use the attribute `targets`, or to read them.
        holdout: by domain, which samples are held out for validation; None for a random split.
        sample_weight: by domain, the weight of every sample in training, as in `from_arrays`; None for equal ones.
        group: by domain, the group id of every sample, as in `from_arrays`; None without groups.
        fingerprint: a text that changes with the data, such as a version. Without one, it is computed from all
            samples, each of which is read once whenever the dataset is loaded (twice without labels).
        concurrent: whether several threads may call `__getitem__` at the same time.
        progress: show a progress bar while all samples are read.

    Example:
        >>> pairs = [(np.zeros(3), "cat"), (np.ones(3), "dog")]
        >>> from_samples({"a": pairs, "b": pairs}).classes
        ('cat', 'dog')
    """
    if not isinstance(domains, Mapping) or not domains:
        raise bad_value("domains", "the samples of every domain by its name", domains)
    guard = nullcontext() if concurrent else Lock()
    rows = [_open(domain, samples, guard) for domain, samples in domains.items()]
    if len(types := {(each.shape, str(each.dtype)) for each in rows}) > 1:
        raise UserError(f"Expected samples of one shape and type in all domains. Found {sorted(types)}.")
    # The first samples in an array have the shape, type and kind of all.
    probe = from_arrays(np.stack([each[[0]][0] for each in rows]), ["0"] * len(rows), list(domains), name=name)
    y = _find_labels(domains, rows, labels) or _read_labels(rows, fingerprint, progress)
    ids = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
    given: dict[str, Any] = {
        what: np.concatenate(_find_values(f"values of {what}", rows, values))
        for what, values in {"sample_weight": sample_weight, "group": group}.items()
        if values is not None
    }
    # The labels are checked, and numbered, as those of arrays are.
    without_x = np.zeros((len(ids), 1), np.float32)
    numbered = from_arrays(without_x, y, ids, name=name, classes=classes, domains=list(domains), **given)
    largest: list[int] = []  # of every sample that is read for the fingerprint, of images of 16 bits
    x = fingerprint or ArrayParts(rows[0].dtype, (len(ids), *rows[0].shape), _read_values(rows, largest, progress))
    about = [
        np.concatenate([getattr(domain, what) for domain in numbered.domains])
        for what in ("y", "weights", "groups", "soft")
        if getattr(numbered.domains[0], what) is not None
    ]
    held = [_find_holdout(domain, holdout) for domain in numbered.domains]
    given_split = (each for each in held if each is not None)
    grouped = [] if group is None else [GROUPED]
    digest = fingerprint_of([*numbered.classes, *domains, x, about[0], ids, *about[1:], *given_split, *grouped])
    own = {} if transform is None else _bind(transform, rows[0])
    parts = tuple(
        replace(domain, inputs=SampleInputs(x, **own), holdout=each)  # type: ignore[arg-type]
        for domain, x, each in zip(numbered.domains, rows, held)
    )
    seen = [note_scale(max(largest, default=None))] if rows[0].dtype == np.uint16 else probe.notes
    shape, kind, notes = probe.input_shape, probe.kind, (*seen, *numbered.notes)
    return replace(numbered, domains=parts, input_shape=shape, kind=kind, fingerprint=digest, notes=notes)


def make_dataset(name: str, loaded: Any, *, progress: bool = False) -> DomainDataset:
    """Make a dataset from what a registered function or class gives: samples by domain, alone or as `domains`."""
    if isinstance(loaded, Mapping):
        return from_samples(loaded, name=name, progress=progress)
    if not hasattr(loaded, "domains"):
        raise UserError(
            f"Expected a DomainDataset, samples by domain, or an object with these as `domains` from the dataset "
            f"{name}. Found {type(loaded).__name__}."
        )
    options = {option: getattr(loaded, option) for option in OPTIONS if hasattr(loaded, option)}
    return from_samples(loaded.domains, name=name, progress=progress, **options)


@dataclass(frozen=True, eq=False)
class SampleRows:
    """The samples of a domain, indexed like an array (n, *shape)."""

    domain: str
    samples: Samples
    guard: AbstractContextManager[Any]  # held while a sample is read
    shape: tuple[int, ...]  # of one
    stored: np.dtype[Any]  # type of the values in the object
    dtype: np.dtype[Any]  # of the rows

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, indices: Sequence[int] | Indices) -> npt.NDArray[Any]:
        rows = [self.read(int(index))[0] for index in indices]
        return np.stack(rows) if rows else np.zeros((0, *self.shape), self.dtype)

    def min(self) -> float:
        """Read all samples for the smallest value."""
        return min(float(self.read(index)[0].min()) for index in range(len(self)))

    def max(self) -> float:
        """Read all samples for the largest value."""
        return max(float(self.read(index)[0].max()) for index in range(len(self)))

    def read(self, index: int) -> tuple[npt.NDArray[Any], Any]:
        """Read a sample: x as an array, and its class as given."""
        with self.guard:
            x, y = _read_pair(self.domain, self.samples, index)
        if x.shape != self.shape or (x.dtype != self.stored and (x.dtype in SCALED or self.stored in SCALED)):
            raise UserError(
                f"Expected samples of one shape and type, {self.shape} of {self.stored}. Found {x.shape} of {x.dtype} "
                f"as sample {index} of domain {self.domain!r}."
            )
        check_scale(x[None])
        with np.errstate(over="ignore"):
            x = np.ascontiguousarray(x, self.dtype)
        if self.dtype.kind == "f" and not np.isfinite(x).all():
            raise UserError(f"Expected finite numbers. Found others in sample {index} of domain {self.domain!r}.")
        return x, y


@dataclass(frozen=True)
class SampleInputs(ArrayInputs):
    """Samples that are read when they are used, and augmented in training."""

    augment: Transform | None = None
    augment_code: str = ""

    @property
    def augmentation(self) -> str:
        return "none" if self.augment is None else "transform of the dataset"

    def prepare(self, indices: Indices, generator: torch.Generator | None = None) -> HostArray:
        if self.augment is None or generator is None:
            return super().prepare(indices)
        x = torch.stack([self.augment(each, generator) for each in torch.from_numpy(as_units(self.x[indices]))])
        return HostArray(x if self.standard is None else torch.from_numpy(self.standard(x.numpy())))


def _open(domain: str, samples: Samples, guard: AbstractContextManager[Any]) -> SampleRows:
    """Read the first sample of a domain, twice: random samples could be neither evaluated nor resumed."""
    if not (hasattr(samples, "__len__") and hasattr(samples, "__getitem__") and len(samples)):
        raise UserError(f"Expected samples with __len__ and __getitem__ as domain {domain!r}. Found none.")
    x = _read_pair(domain, samples, 0)[0]
    if not np.array_equal(x, _read_pair(domain, samples, 0)[0]):
        raise UserError(
            f"Expected the same values whenever a sample is read. Found others in domain {domain!r}. Move random "
            "augmentation to `transform`."
        )
    if x.dtype.kind not in "biuf":
        raise UserError(f"Expected x as an array or a tensor of numbers. Found {x.dtype} in domain {domain!r}.")
    return SampleRows(domain, samples, guard, x.shape, x.dtype, x.dtype if is_scaled(x[None]) else np.dtype(np.float32))


def _read_pair(domain: str, samples: Samples, index: int) -> tuple[npt.NDArray[Any], Any]:
    pair = samples[index]
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise UserError(f"Expected (x, y) as sample {index} of domain {domain!r}. Found {type(pair).__name__}.")
    x, y = (np.asarray(each.detach().cpu() if isinstance(each, Tensor) else each) for each in pair)
    if y.size != 1 and y.ndim != 1:
        raise UserError(f"Expected one class as y of sample {index} of domain {domain!r}. Found several values.")
    return x, y.item() if y.size == 1 else y


def _find_labels(
    domains: Mapping[str, Samples], rows: Sequence[SampleRows], labels: Mapping[str, npt.ArrayLike] | None
) -> list[Any] | None:
    """Return the labels that are given, or those of the attributes `targets`, as torchvision has them."""
    given = {name: getattr(samples, "targets", None) for name, samples in domains.items()} if labels is None else labels
    if labels is None and any(each is None for each in given.values()):
        return None
    return [label for values in _find_values("labels", rows, given) for label in values.tolist()]


def _find_values(what: str, rows: Sequence[SampleRows], given: Mapping[str, Any]) -> list[npt.NDArray[Any]]:
    """Return what is given by domain; UserError unless there is a value for each of its samples."""
    found = [np.asarray(given.get(each.domain, ())) for each in rows]
    for each, values in zip(rows, found):
        if values.shape[:1] != (len(each),) or values.ndim > 2:
            raise UserError(f"Expected {len(each)} {what} of domain {each.domain!r}. Found {values.shape}.")
    return found


def _read_values(rows: Sequence[SampleRows], largest: list[int], progress: bool) -> Iterator[npt.NDArray[Any]]:
    """Yield all samples; the largest value of each of 16 bits is appended to `largest`."""
    for x, _ in _read_all(rows, progress):
        if x.dtype == np.uint16:
            largest.append(int(x.max()))
        yield x


def _read_labels(rows: Sequence[SampleRows], fingerprint: str, progress: bool) -> list[Any]:
    """Read all labels; those of data with a fingerprint of their own are cached."""
    key = fingerprint_of([fingerprint, *(part for each in rows for part in (each.domain, str(len(each))))])
    file = cache_dir() / "labels" / f"{key}.npy"
    if fingerprint and file.exists():
        cached: list[Any] = np.load(io.BytesIO(read_bytes(file)), allow_pickle=False).tolist()
        return cached
    labels = [y for _, y in _read_all(rows, progress)]
    if fingerprint:
        content = io.BytesIO()
        np.save(content, np.asarray(labels), allow_pickle=False)
        make_folder(file.parent, "FGMIX_CACHE")
        write_bytes(file, content.getvalue())
    return labels


def _read_all(rows: Sequence[SampleRows], progress: bool) -> Iterator[tuple[npt.NDArray[Any], Any]]:
    """Yield all samples with their classes."""
    with Progress("read samples", sum(map(len, rows)), "samples", show=progress) as bar:
        for each in rows:
            for index in range(len(each)):
                yield each.read(index)
                bar.advance()


def _find_holdout(domain: Domain, holdout: Mapping[str, npt.ArrayLike] | None) -> npt.NDArray[np.bool_] | None:
    if holdout is None:
        return None
    held = np.asarray(holdout.get(domain.name, ()))
    if held.dtype != np.bool_ or held.shape != (len(domain),):
        raise UserError(
            f"Expected true or false for {len(domain)} samples of {domain.name!r} in holdout. Found others."
        )
    return held


def _bind(transform: Callable[..., Tensor], rows: SampleRows) -> dict[str, Any]:
    """Return a function of x and a generator, tried on the first sample, with a digest of what it makes of it."""
    with_generator = _accepts_two(transform)

    def augment(x: Tensor, generator: torch.Generator) -> Tensor:
        return check_result(transform(x, generator) if with_generator else transform(x), x)

    x = torch.from_numpy(as_units(rows[[0]]))[0]
    with forbid_global_generators("a transform"):
        return {"augment": augment, "augment_code": digest_outcome(augment, x)}


def _accepts_two(transform: Callable[..., Any]) -> bool:
    """Say whether a transform accepts a generator besides x."""
    try:
        inspect.signature(transform.forward if isinstance(transform, nn.Module) else transform).bind(None, None)
    except (TypeError, ValueError):  # the latter for functions without a signature
        return False
    return True
