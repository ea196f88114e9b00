"""Datasets from arrays in memory or in an .npz file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fgmix.data.dataset import ArrayInputs, Domain, DomainDataset, Indices, fingerprint_of
from fgmix.data.folders import list_some
from fgmix.data.npz import open_npz
from fgmix.errors import UserError, bad_value
from fgmix.records.protocols import Kind

KEYS = ("x", "y", "domain", "classes", "domains")


def from_arrays(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    domain: npt.ArrayLike,
    *,
    name: str = "arrays",
    classes: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> DomainDataset:
    """Make a dataset from arrays.

    Args:
        x: features (n, f), or images (n, c, h, w) as floats or as uint8 (scaled to [0, 1]).
        y: n labels: class names, or integers.
        domain: n domain ids: names, or integers.
        name: name of the dataset.
        classes: class names that integer labels index; None to use the labels as names.
        domains: domain names that integer ids index; None to use the ids as names.
        sample_weight: n numbers, at least 0: sampling probabilities in training, relative within a domain.

    Example:
        >>> data = from_arrays(np.zeros((4, 2)), ["cat", "dog", "cat", "dog"], [0, 0, 1, 1])
        >>> data.classes, data.domain_names, data.input_shape
        (('cat', 'dog'), ('0', '1'), (2,))
    """
    if not isinstance(name, str) or not name.strip():
        raise bad_value("name", "a text that is not blank", name)
    x, y, domain = _array("x", x), _array("y", y), _array("domain", domain)
    _check(x, y, domain)
    labels, class_names = _number("y", y, "classes", classes)
    ids, domain_names = _number("domain", domain, "domains", domains)
    if x.dtype != np.uint8:
        x = as_floats(x)
    check_finite(x)
    present = [d for d in range(len(domain_names)) if (ids == d).any()]
    weights = None if sample_weight is None else check_weights(sample_weight, len(x))
    parts = tuple(
        Domain(
            domain_names[d],
            ArrayInputs(np.ascontiguousarray(x[ids == d])),
            labels[ids == d],
            weights=None if weights is None else weights[ids == d],
        )
        for d in present
    )
    kind: Kind = "features" if x.ndim == 2 else "small_images"
    digest = fingerprint_of([*class_names, *domain_names, x, labels, ids, *([] if weights is None else [weights])])
    empty = [each for d, each in enumerate(domain_names) if d not in present]
    notes = (f"Domains without a sample are left out: {list_some(empty)}.",) if empty else ()
    return DomainDataset(name, parts, tuple(class_names), x.shape[1:], kind, digest, notes)


def load_npz(path: Path) -> DomainDataset:
    """Load an .npz file with arrays X (or x), y and domain, and optionally names in classes and domains."""
    content = open_npz(path, KEYS)
    arrays = content.arrays
    if any(key not in arrays for key in ("x", "y", "domain")):
        names = list_some(content.names) or "none"
        raise UserError(
            f"Expected the arrays X, y and domain in {path}. Found {names}. Rename or add arrays, and save with "
            "numpy.savez."
        )
    dataset = from_arrays(
        arrays["x"],
        arrays["y"],
        arrays["domain"],
        name=path.stem,
        classes=_names("classes", arrays.get("classes")),
        domains=_names("domains", arrays.get("domains")),
    )
    if content.others:
        dataset = replace(dataset, notes=(*dataset.notes, f"Arrays that are not used: {list_some(content.others)}."))
    return dataset


def check_numbers(x: npt.NDArray[Any]) -> None:
    """Raise an error for samples that are not real numbers."""
    if x.dtype.kind not in "biuf":
        raise UserError(f"Expected real numbers in x. Found {x.dtype}. Encode texts and categories first.")


def as_floats(x: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Convert x to single precision; values that are too large become infinite."""
    with np.errstate(over="ignore"):
        return x.astype(np.float32)


def finite_rows(x: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return the mask (n,) of the samples without NaN and infinity."""
    mask: npt.NDArray[np.bool_] = np.isfinite(x).all(axis=tuple(range(1, x.ndim)))
    return mask


def check_finite(x: npt.NDArray[Any]) -> None:
    """Raise an error for NaN and infinity."""
    rows = np.flatnonzero(~finite_rows(x))
    if len(rows):
        raise UserError(
            f"Expected finite numbers in x. Found NaN or infinity in {len(rows)} rows, first in row {rows[0]}. Remove "
            "or fill them."
        )


def _array(what: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    if hasattr(values, "toarray"):
        raise UserError(f"Expected a dense array {what}. Found a sparse one. Pass {what}.toarray().")
    if np.ma.is_masked(values):
        raise UserError(f"Expected a value in every entry of {what}. Found masked ones. Remove or fill them.")
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:  # ragged lists; tensors on another device or with gradients
        raise UserError(f"Expected an array {what}. Found {type(values).__name__} ({error}).") from error


def _check(x: npt.NDArray[Any], y: npt.NDArray[Any], domain: npt.NDArray[Any]) -> None:
    if x.ndim not in (2, 4):
        raise UserError(f"Expected x of shape (n, f) or (n, c, h, w). Found {x.shape}. Reshape it.")
    if not y.shape == domain.shape == x.shape[:1]:
        raise UserError(
            f"Expected one label and one domain id for each of the {len(x)} samples. "
            f"Found y {y.shape} and domain {domain.shape}."
        )
    if x.size == 0:
        raise UserError(f"Expected at least one sample with one feature. Found x of shape {x.shape}.")
    check_numbers(x)


def check_weights(sample_weight: npt.ArrayLike, n: int) -> npt.NDArray[np.float64]:
    """Convert the weights of n samples; UserError unless they are n finite numbers of at least 0."""
    weights = _array("sample_weight", sample_weight)
    if weights.shape != (n,) or weights.dtype.kind not in "biuf":
        raise UserError(
            f"Expected a weight for each of the {n} samples. Found {weights.dtype} of shape {weights.shape} in "
            "sample_weight."
        )
    odd = np.flatnonzero(~np.isfinite(weights) | (weights < 0))
    if len(odd):
        raise UserError(
            f"Expected weights of at least 0 in sample_weight. Found {weights[odd[0]]} in row {odd[0]} ({len(odd)} "
            "such rows)."
        )
    return weights.astype(np.float64)


def _names(what: str, values: npt.NDArray[Any] | None) -> list[str] | None:
    """Check the names of classes or domains from an .npz file."""
    if values is None:
        return None
    if values.ndim != 1 or values.dtype.kind not in "USiu":
        raise UserError(f"Expected a list of names in {what}. Found {values.dtype} of shape {values.shape}.")
    return [str(value) for value in _texts(what, values).tolist()]


def _number(
    what: str, values: npt.NDArray[Any], names_of: str, names: Sequence[str] | None
) -> tuple[Indices, list[str]]:
    """Return indices 0…m−1 and m names, from texts or from integers, with or without `names`."""
    values = _texts(what, values)
    if values.dtype.kind == "f":
        _check_whole(what, values)
        values = values.astype(np.int64) if names is not None else values
    if names is not None and values.dtype.kind in "iu":
        if values.min() < 0 or values.max() >= len(names):
            raise UserError(
                f"Expected {what} within 0…{len(names) - 1}, one number per name. Found {values.min()}…{values.max()}."
            )
        return values.astype(np.int64), [str(name) for name in names]
    distinct, numbers = np.unique(values, return_inverse=True)
    present = [str(value) for value in distinct.tolist()]
    if names is not None and (unnamed := sorted(set(present) - {str(name) for name in names})):
        raise UserError(
            f"Expected the names in {names_of} in {what}. Found {list_some(unnamed)}. Add them to {names_of}."
        )
    return numbers.astype(np.int64), present


def _texts(what: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert bytes and objects to texts (or integers); UserError if they are neither texts nor numbers."""
    if values.dtype.kind == "O":
        odd = [(row, value) for row, value in enumerate(values.flat) if not isinstance(value, str)]
        if odd and all(isinstance(value, int | np.integer) for value in values.flat):
            return values.astype(np.int64)
        if odd:
            row, value = odd[0]
            raise UserError(f"Expected a text or an integer in every entry of {what}. Found {value!r} in row {row}.")
        values = values.astype(str)
    if values.dtype.kind == "S":
        try:
            values = np.char.decode(values, "utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"Expected texts in UTF-8 in {what}. Found {error.object!r}.") from error
    if values.dtype.kind not in "Ubiuf":
        raise UserError(f"Expected names or integers in {what}. Found {values.dtype}. Convert them to texts.")
    if values.dtype.kind == "U":
        _check_texts(what, values)
    return values


def _check_texts(what: str, values: npt.NDArray[Any]) -> None:
    """Raise an error for missing names, and for names that differ only by surrounding blanks."""
    stripped = np.char.strip(values)
    missing = np.flatnonzero((stripped == "") | (stripped == "nan"))
    if len(missing):
        raise UserError(
            f"Expected a name in every entry of {what}. Found {str(values[missing[0]])!r} in row {missing[0]} "
            f"({len(missing)} such rows), which is a missing value. Fill or remove them."
        )
    distinct = np.unique(values)
    bare, counts = np.unique(np.char.strip(distinct), return_counts=True)
    if (counts > 1).any():
        twice = [str(value) for value in distinct if value.strip() == bare[counts > 1][0]]
        raise UserError(f"Expected names in {what} that differ by more than blanks. Found {twice}. Strip them.")


def _check_whole(what: str, values: npt.NDArray[Any]) -> None:
    odd = np.flatnonzero(~np.isfinite(values) | (values != np.round(values)))
    if len(odd):
        raise UserError(
            f"Expected names or integers in {what}. Found {values[odd[0]]} in row {odd[0]} ({len(odd)} such rows)."
        )
