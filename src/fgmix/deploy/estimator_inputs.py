"""Inputs of `DomainGeneralizer`, checked and converted to a dataset."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.multiclass import check_classification_targets

from fgmix.data import DomainDataset, from_arrays
from fgmix.data.arrays import as_floats
from fgmix.data.dataset import Indices
from fgmix.errors import UserError, bad_value, unknown
from fgmix.records.schema import RunSpec

Array = npt.NDArray[Any]
OTHER = ("sample_weight", "sample_domain")  # parameters of `fit` in addition to its named ones
LOST = 1e-4  # share of a feature's spread that single precision may lose


def check_other(other: Mapping[str, Any], domains: Sequence[Hashable] | None) -> Sequence[Hashable] | None:
    """Check the parameters of `fit` in addition to its named ones; return the domain ids, given under either name.

    `sample_weight` is not a named parameter: scikit-learn treats such weights as exact repetitions of samples (its
    checks compare the two), and here they are sampling probabilities.
    """
    if "groups" in other:
        raise UserError(
            "Expected the domains of the samples as `domains`. Found `groups`, which splits samples for "
            "cross-validation. Pass domains=… here, and groups=… to the search or to cross_val_score."
        )
    for name in other:
        if name not in OTHER:
            raise unknown("parameter of fit", name, ["domains", *OTHER])
    if other.get("sample_domain") is None:
        return domains
    if domains is not None:
        raise UserError("Expected `domains` or `sample_domain`, which mean the same. Found both. Drop one.")
    ids = np.asarray(other["sample_domain"])
    if ids.dtype.kind in "if" and (ids < 0).any():
        raise UserError(
            f"Expected source domains in `sample_domain`. Found {ids[ids < 0][0]}: negative ids are target domains "
            "in skada, and a domain that the model is meant for is not trained on. Remove its samples."
        )
    given: Sequence[Hashable] = other["sample_domain"]
    return given


@dataclass(frozen=True)
class Samples:
    """Checked arrays, with labels and domains numbered."""

    x: Array  # features or images
    y: Indices  # numbers of the classes
    classes: Array  # labels
    ids: Indices  # numbers of the domains
    domains: tuple[Hashable, ...]  # domain ids
    # sampling weight of each sample, relative to others of its domain; None: uniform
    sample_weight: npt.ArrayLike | None

    @property
    def names(self) -> list[str]:
        """A distinct text for each domain: 1 and "1" are different domains."""
        texts = [str(domain) for domain in self.domains]
        return texts if len(set(texts)) == len(texts) else [repr(domain) for domain in self.domains]

    def offset(self, spec: RunSpec) -> Array | None:
        """Compute what to subtract from features whose spread single precision would lose; None if it loses none.

        Standardised features do not depend on it, so it may be computed from all samples.
        """
        if self.x.ndim != 2 or spec.standardize is False:
            return None
        x = _to_floats(self.x)
        lost = np.abs(x - as_floats(x)).max(axis=0) > LOST * x.std(axis=0)
        return x.mean(axis=0) * lost if lost.any() else None

    def dataset(self, spec: RunSpec) -> DomainDataset:
        """Make the samples a dataset."""
        classes = [str(label) for label in self.classes.tolist()]
        x = prepare_samples(self.x, self.offset(spec))
        weights = self.sample_weight
        return from_arrays(x, self.y, self.ids, classes=classes, domains=self.names, sample_weight=weights)


def require_labels(y: npt.ArrayLike) -> None:
    """Raise an error for missing labels among texts, which numpy would make a class; scikit-learn checks numbers."""
    labels = y if isinstance(y, np.ndarray) else np.array(y, dtype=object)
    if labels.dtype != object or labels.ndim != 1:
        return
    among_texts = any(isinstance(label, str) for label in labels)
    for row, label in enumerate(labels):
        if label is None or (among_texts and isinstance(label, float) and np.isnan(label)):
            raise UserError(f"Expected a label for each sample. Found {label} for sample {row}. Drop it, or label it.")


def number_samples(
    x: Array, y: Array, domains: Sequence[Hashable] | None, sample_weight: npt.ArrayLike | None = None
) -> Samples:
    """Number labels and domains; UserError for fewer than two classes, or missing domain ids."""
    check_classification_targets(y)
    classes, labels = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise UserError(f"Expected at least two classes in y. Found one class, {classes.tolist()[0]!r}.")
    ids = _domain_ids(domains, len(x)) if domains is not None else ["all"] * len(x)
    distinct = _sort_ids(set(ids))
    number = {domain: d for d, domain in enumerate(distinct)}
    numbers = np.array([number[domain] for domain in ids], dtype=np.int64)
    return Samples(x, labels.astype(np.int64), classes, numbers, tuple(distinct), sample_weight)


def _domain_ids(domains: Sequence[Hashable], n: int) -> list[Hashable]:
    """Return one hashable id for each sample; none may be missing."""
    if not isinstance(domains, Iterable):
        raise bad_value("domains", "a sequence of ids", domains)
    ids = domains.tolist() if hasattr(domains, "tolist") else list(domains)
    if len(ids) != n:
        raise UserError(f"Expected one domain id for each of the {n} samples. Found {len(ids)} in `domains`.")
    for row, domain in enumerate(ids):
        if not isinstance(domain, Hashable):
            raise bad_value("domains", "one id for each sample, such as a text or a number", domain)
        if _is_missing(domain):
            raise UserError(f"Expected a domain id for each sample. Found {domain!r} in row {row} of `domains`.")
    return ids


def _is_missing(domain: Hashable) -> bool:
    """Tell whether an id is None, or NaN, NaT or pandas' NA, which are not equal to themselves."""
    same = domain == domain
    return domain is None or not isinstance(same, bool | np.bool_) or not same


def _sort_ids(domains: set[Hashable]) -> list[Hashable]:
    """Sort the ids in an order that does not depend on that of the samples; ids may not be comparable."""
    try:
        return sorted(domains)  # type: ignore[type-var]
    except TypeError:
        return sorted(domains, key=lambda domain: (type(domain).__name__, repr(domain)))


def prepare_samples(x: Array, offset: Array | None) -> Array:
    """Prepare samples for `from_arrays`: images unchanged, features as floats minus the offset, if any."""
    if x.ndim != 2:
        return x
    return as_floats(_to_floats(x) if offset is None else _to_floats(x) - offset)


def scales_bytes(x: Array) -> bool:
    """Tell whether x are uint8 images, which are scaled to [0, 1]."""
    return x.ndim == 4 and x.dtype == np.uint8


def _to_floats(x: Array) -> Array:
    """Convert x to floating-point numbers, double precision unless it is float32."""
    return x if x.dtype in (np.float32, np.float64) else x.astype(np.float64)


@contextmanager
def explain_texts() -> Iterator[None]:
    """Make scikit-learn's error for texts among the features say what to do, within the block."""
    try:
        yield
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
        raise UserError(
            f"Expected numbers in X. Found a text ({error}). Encode texts and categories first, for example with "
            "sklearn.preprocessing.OneHotEncoder."
        ) from error
