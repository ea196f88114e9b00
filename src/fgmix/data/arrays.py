"""Datasets from arrays in memory or in an .npz file."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from fgmix.data._dataset import ArrayInputs, Domain, DomainDataset, Kind, fingerprint_of
from fgmix.errors import UserError


def from_arrays(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    domain: npt.ArrayLike,
    *,
    name: str = "arrays",
    classes: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
) -> DomainDataset:
    """A dataset of arrays.

    Args:
        x: features (n, f), or images (n, c, h, w) as floats or as uint8 (scaled to [0, 1]).
        y: n labels: class names, or integers.
        domain: n domain ids: names, or integers.
        name: name of the dataset.
        classes: names of the classes that integer labels number; else the labels' own texts.
        domains: names of the domains that integer ids number; else the ids' own texts.

    Example:
        >>> data = from_arrays(np.zeros((4, 2)), ["cat", "dog", "cat", "dog"], [0, 0, 1, 1])
        >>> data.classes, data.domain_names, data.input_shape
        (('cat', 'dog'), ('0', '1'), (2,))
    """
    x, y, domain = np.asarray(x), np.asarray(y), np.asarray(domain)
    _check(x, y, domain)
    labels, class_names = _numbered("y", y, classes)
    ids, domain_names = _numbered("domain", domain, domains)
    if x.dtype != np.uint8:
        x = as_floats(x)
    check_finite(x)
    present = [d for d in range(len(domain_names)) if (ids == d).any()]
    parts = tuple(
        Domain(domain_names[d], ArrayInputs(np.ascontiguousarray(x[ids == d])), labels[ids == d]) for d in present
    )
    kind: Kind = "features" if x.ndim == 2 else "small_images"
    digest = fingerprint_of([*class_names, *domain_names, x, labels, ids])
    return DomainDataset(name, parts, tuple(class_names), x.shape[1:], kind, digest)


def load_npz(path: Path) -> DomainDataset:
    """An .npz file with arrays X (or x), y and domain, and optionally the names `classes` and `domains`."""
    arrays = read_npz(path, ("x", "y", "domain", "classes", "domains"))
    missing = [key for key in ("x", "y", "domain") if key not in arrays]
    if missing:
        raise UserError(f"Expected the arrays X, y and domain in {path}. Found no {', '.join(missing)}. Add them.")
    names = {key: [str(v) for v in arrays[key]] for key in ("classes", "domains") if key in arrays}
    return from_arrays(
        arrays["x"],
        arrays["y"],
        arrays["domain"],
        name=path.stem,
        classes=names.get("classes"),
        domains=names.get("domains"),
    )


def read_npz(path: Path, keys: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Those arrays of an .npz file that are called as `keys`, in upper or lower case."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            return {key.lower(): archive[key] for key in archive.files if key.lower() in keys}
    except OSError as error:
        raise UserError(f"Expected an .npz file at {path}. It cannot be read ({error.strerror or error}).") from error
    except (ValueError, TypeError, EOFError, BadZipFile, zlib.error) as error:  # TypeError: a single array, as .npy
        raise UserError(
            f"Expected plain arrays in {path}. Found pickled objects or a broken file. Save numbers and texts."
        ) from error


def check_numbers(x: npt.NDArray[Any]) -> None:
    """Refuse instances that are not real numbers."""
    if not (np.issubdtype(x.dtype, np.number) or x.dtype == bool) or np.iscomplexobj(x):
        raise UserError(f"Expected real numbers in x. Found {x.dtype}. Encode texts and categories first.")


def as_floats(x: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Single precision; what is too large for it becomes infinite."""
    with np.errstate(over="ignore"):
        return x.astype(np.float32)


def finite_rows(x: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which instances (n,) hold neither NaN nor infinity."""
    found: npt.NDArray[np.bool_] = np.isfinite(x).all(axis=tuple(range(1, x.ndim)))
    return found


def check_finite(x: npt.NDArray[Any]) -> None:
    """Refuse NaN and infinity."""
    rows = np.flatnonzero(~finite_rows(x))
    if len(rows):
        raise UserError(
            f"Expected finite numbers in x. Found NaN or infinity in {len(rows)} rows, first in row {rows[0]}."
        )


def _check(x: npt.NDArray[Any], y: npt.NDArray[Any], domain: npt.NDArray[Any]) -> None:
    if x.ndim not in (2, 4):
        raise UserError(f"Expected x of shape (n, f) or (n, c, h, w). Found {x.shape}. Reshape it.")
    if not (len(x) == len(y) == len(domain)) or y.ndim != 1 or domain.ndim != 1:
        raise UserError(
            f"Expected one label and one domain id for each of the {len(x)} instances. "
            f"Found y {y.shape} and domain {domain.shape}."
        )
    if len(x) == 0:
        raise UserError("Expected at least one instance. Found none.")
    check_numbers(x)


def _numbered(
    what: str, values: npt.NDArray[Any], names: Sequence[str] | None
) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Integers 0…m−1 and the m names, from names or from integers with or without names."""
    if names is not None and np.issubdtype(values.dtype, np.integer):
        if values.min() < 0 or values.max() >= len(names):
            raise UserError(
                f"Expected {what} within 0…{len(names) - 1}, one number per name. Found {values.min()}…{values.max()}."
            )
        return values.astype(np.int64), [str(name) for name in names]
    if np.issubdtype(values.dtype, np.floating) and not (values == np.round(values)).all():
        raise UserError(f"Expected class names or integers in {what}. Found fractions such as {values.flat[0]}.")
    distinct, numbers = np.unique(values, return_inverse=True)
    return numbers.astype(np.int64), [str(value) for value in distinct.tolist()]
