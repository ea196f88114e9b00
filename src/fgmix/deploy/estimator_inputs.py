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
from fgmix.data.arrays import MISSING, is_scaled, require_unmasked
from fgmix.data.dataset import Indices
from fgmix.errors import UserError, bad_value, unknown

Array = npt.NDArray[Any]
OTHER = ("sample_weight", "sample_domain", "group")  # parameters of `fit` in addition to its named ones


def check_other(other: Mapping[str, Any], domains: Sequence[Hashable] | None) -> Sequence[Hashable] | None:
    """Check the parameters of `fit` in addition to its named ones; return the domain ids, given under either name.

    `sample_weight` is not a named parameter: scikit-learn treats such weights as exact repetitions of samples (its
    checks compare the two), and here they are sampling probabilities.
    """
    if "groups" in other:
        raise UserError(
            "Expected the domains of the samples as `domains`. Found `groups`, which splits samples for "
            "cross-validation. Pass domains=… here, and groups=… to the search or to cross_val_score; `group` has the "
            "groups within domains."
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

    x: Array  # features, signals or images
    y: Indices  # numbers of the classes
    classes: Array  # labels
    ids: Indices  # numbers of the domains
    domains: tuple[Hashable, ...]  # domain ids
    # sampling weight of each sample, relative to others of its domain; None: uniform
    sample_weight: npt.ArrayLike | None
    group: npt.ArrayLike | None = None  # groups that a split does not divide, see `from_arrays`

    @property
    def names(self) -> list[str]:
        """A distinct text for each domain: 1 and "1" are different domains."""
        texts = [str(domain) for domain in self.domains]
        return texts if len(set(texts)) == len(texts) else [repr(domain) for domain in self.domains]

    def dataset(self) -> DomainDataset:
        """Make the samples a dataset."""
        classes = [str(label) for label in self.classes.tolist()]
        x, weights = prepare_samples(self.x), self.sample_weight
        names = self.names
        return from_arrays(x, self.y, self.ids, classes=classes, domains=names, sample_weight=weights, group=self.group)


def require_values(x: object, y: npt.ArrayLike) -> None:
    """Raise an error for masked entries, and for missing labels, which numpy would make a class; scikit-learn checks
    numbers."""
    require_unmasked("X", x)
    require_unmasked("y", y)
    labels = y if isinstance(y, np.ndarray) else np.array(y, dtype=object)
    if labels.ndim != 1 or labels.dtype.kind not in "OU":
        return
    among_texts = any(isinstance(label, str) for label in labels)
    for row, label in enumerate(labels):
        if label is None or (among_texts and _is_missing(label)):
            raise UserError(f"Expected a label for each sample. Found {label} for sample {row}. Drop it, or label it.")


def number_samples(
    x: Array,
    y: Array,
    domains: Sequence[Hashable] | None,
    sample_weight: npt.ArrayLike | None = None,
    group: npt.ArrayLike | None = None,
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
    return Samples(x, labels.astype(np.int64), classes, numbers, tuple(distinct), sample_weight, group)


def _domain_ids(domains: Sequence[Hashable], n: int) -> list[Hashable]:
    """Return one hashable id for each sample; none may be missing."""
    if not isinstance(domains, Iterable):
        raise bad_value("domains", "a sequence of ids", domains)
    require_unmasked("domains", domains)
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
    """Tell whether an id is None or a text for it, or NaN, NaT or pandas' NA, which are not equal to themselves."""
    same = domain == domain
    if isinstance(domain, str):
        return domain.strip() in MISSING
    return domain is None or not isinstance(same, bool | np.bool_) or not same


def _sort_ids(domains: set[Hashable]) -> list[Hashable]:
    """Sort the ids in an order that does not depend on that of the samples; ids may not be comparable."""
    try:
        return sorted(domains)  # type: ignore[type-var]
    except TypeError:
        return sorted(domains, key=lambda domain: (type(domain).__name__, repr(domain)))


def prepare_samples(x: Array) -> Array:
    """Prepare samples for `from_arrays`: images unchanged, others as floats, in double precision unless float32."""
    return x if x.ndim == 4 or x.dtype == np.float32 else x.astype(np.float64, copy=False)


def name_scaled_type(x: Array) -> str | None:
    """Return the type of images that are scaled to [0, 1], uint8 or uint16; None for other samples."""
    return x.dtype.name if x.ndim == 4 and is_scaled(x) else None


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
