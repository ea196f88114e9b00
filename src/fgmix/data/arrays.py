"""Datasets from arrays, in memory or in an untrusted .npz file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fgmix.data.dataset import (
    GROUPED,
    SCALED,
    ArrayInputs,
    Domain,
    DomainDataset,
    Indices,
    TableInputs,
    fingerprint_of,
)
from fgmix.data.files import open_file
from fgmix.data.folders import describe_shared_groups, list_some
from fgmix.data.standardisation import RESOLVED, pooled_axes
from fgmix.errors import UserError, bad_value
from fgmix.records.columns import Column
from fgmix.records.protocols import Kind

Shape = tuple[int, ...]
GB = 1_000_000_000
MISSING = ("", "nan", "NaN", "None", "<NA>", "NaT")  # texts of values that are missing, as `.astype(str)` writes them
KINDS: dict[int, Kind] = {2: "features", 3: "signals", 4: "small_images"}  # by number of axes
LOST = 1e-4  # share of a feature's spread that single precision may lose
ROUNDED = 1e-3  # by which probabilities may miss the sum 1
SOFT = "Soft labels: training uses the probabilities, evaluation the most probable class."

Soft = npt.NDArray[np.float32]  # (n, C)


def from_arrays(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    domain: npt.ArrayLike,
    *,
    name: str = "arrays",
    classes: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    sample_weight: npt.ArrayLike | None = None,
    group: npt.ArrayLike | None = None,
    columns: Sequence[Column] = (),
) -> DomainDataset:
    """Make a dataset from arrays.

    Args:
        x: features (n, f) or signals (n, c, t), stored in single precision unless it would lose their spread; or
            images (n, c, h, w) as floats, or as uint8 or uint16, which are scaled to [0, 1].
        y: n labels, class names or integers; or soft labels (n, C), the probabilities of the classes, which training
            uses where the method allows it. Evaluation uses the most probable class.
        domain: n domain ids: names, or integers.
        name: name of the dataset.
        classes: class names that integer labels index; None to use the labels as names.
        domains: domain names that integer ids index; None to use the ids as names.
        sample_weight: n numbers, at least 0: weights of the samples in training, relative within a domain.
        group: n group ids, such as those of patients or recordings: names, or integers. All samples of a group in a
            domain are in its training part, or all in its holdout part.
        columns: of a table, which the features encode (`data.tables`); NaN is then a missing value.

    Example:
        >>> data = from_arrays(np.zeros((4, 2)), ["cat", "dog", "cat", "dog"], [0, 0, 1, 1])
        >>> data.classes, data.domain_names, data.input_shape
        (('cat', 'dog'), ('0', '1'), (2,))
    """
    if not isinstance(name, str) or not name.strip():
        raise bad_value("name", "a text that is not blank", name)
    x, y, domain = _array("x", x), _array("y", y), _array("domain", domain)
    _check_shapes({"x": x.shape, "y": y.shape, "domain": domain.shape})
    labels, class_names, soft = _number_classes(y, classes)
    ids, domain_names = _number("domain", domain, "domains", domains)
    x = _store(x, is_table=bool(columns))
    weights = None if sample_weight is None else check_weights(sample_weight, len(x))
    groups, group_names = None, list[str]()
    if group is not None:
        given = _array("group", group)
        if given.shape != (len(x),):
            raise UserError(f"Expected {len(x)} group ids in group, one for each sample. Found a shape {given.shape}.")
        groups, group_names = _number("group", given, "groups", None)
    rows = [ids == d for d in range(len(domain_names))]
    parts = tuple(
        Domain(
            each,
            (TableInputs if columns else ArrayInputs)(np.ascontiguousarray(x[mine])),
            labels[mine],
            weights=None if weights is None else weights[mine],
            soft=None if soft is None else soft[mine],
            groups=None if groups is None else groups[mine],
        )
        for each, mine in zip(domain_names, rows)
        if mine.any()
    )
    added = [each for each in (weights, groups, soft) if each is not None]
    features = [feature for column in columns for feature in column.features]
    grouped = [] if groups is None else [GROUPED]
    digest = fingerprint_of([*class_names, *domain_names, x, labels, ids, *added, *features, *grouped])
    empty = [each for each, mine in zip(domain_names, rows) if not mine.any()]
    notes = [f"Domains without a sample are left out: {list_some(empty)}."] if empty else []
    notes += [*_note_samples(x), *note_groups(parts, group_names), *([] if soft is None else [SOFT])]
    kind = KINDS[x.ndim]
    return DomainDataset(
        name,
        parts,
        tuple(class_names),
        x.shape[1:],
        kind,
        digest,
        notes=tuple(notes),
        columns=tuple(columns),
        group_names=tuple(group_names),
    )


def load_npz(path: Path) -> DomainDataset:
    """Load an .npz file with arrays X (or x), y and domain, and optionally names in classes and domains, group and
    sample_weight.
    """
    optional = ("classes", "domains", "group", "sample_weight")
    arrays, others = read_npz(path, ("X", "y", "domain"), optional, check=_check_shapes)
    if weights := [name for name in others if name.lower() in ("weight", "weights", "sample_weights")]:
        raise UserError(f"Expected weights of samples as sample_weight in {path}. Found {weights[0]}. Rename it.")
    given: dict[str, Any] = {what.lower(): values for what, values in arrays.items()}
    given |= {what: _names(what, given.get(what)) for what in ("classes", "domains")}
    dataset = from_arrays(**given, name=path.stem)
    if others:
        dataset = replace(dataset, notes=(*dataset.notes, f"Arrays that are not used: {list_some(others)}."))
    return dataset


def note_groups(domains: Sequence[Domain], names: Sequence[str]) -> list[str]:
    """Note groups that occur in several domains."""
    several = Counter(group for domain in domains if domain.groups is not None for group in set(domain.groups.tolist()))
    shared = [names[group] for group in sorted(several) if several[group] > 1]
    return [describe_shared_groups(shared)] if shared else []


def _number_classes(y: npt.NDArray[Any], classes: Sequence[str] | None) -> tuple[Indices, list[str], Soft | None]:
    """Return labels, names of the classes and probabilities (n, C), None if every label is certain."""
    if y.ndim == 1:
        return *_number("y", y, "classes", classes), None
    columns = len(classes) if classes is not None and _are_names(classes) else y.shape[1]
    if y.dtype.kind not in "biuf" or y.shape[1] != columns:
        raise UserError(f"Expected soft labels of {columns} classes, numbers, in y. Found {y.dtype} of {y.shape}.")
    total = y.sum(axis=1, dtype=np.float64)
    valid = (y >= 0).all(axis=1) & (np.abs(total - 1) < ROUNDED)  # False for NaN
    _require_rows(valid, y, "soft labels that sum to 1 in the rows of y (several labels of a sample are not supported)")
    soft: Soft = (y / total[:, None]).astype(np.float32)
    numbered = _number("y", soft.argmax(axis=1), "classes", classes or [str(c) for c in range(y.shape[1])])
    return *numbered, None if (soft.max(axis=1) == 1).all() else soft


def _store(x: npt.NDArray[Any], *, is_table: bool) -> npt.NDArray[Any]:
    """Convert samples to what is stored: images of integers as they are, others in single precision if it suffices."""
    check_numbers(x)
    check_scale(x)
    if is_scaled(x):
        return x
    filled = np.where(np.isnan(x), 0, x) if is_table else x
    check_finite(single := as_floats(filled))
    return x.astype(np.float64) if x.ndim < 4 and _loses_spread(filled, single) else as_floats(x)


def _note_samples(x: npt.NDArray[Any]) -> list[str]:
    """Note shapes that are rather a mistake, and how images of 16 bits are scaled."""
    if x.ndim == 3 and x.shape[1] >= x.shape[2]:  # more likely grey images, or the axes are in another order
        return [
            f"Signals of {x.shape[1]} channels and {x.shape[2]} points in time. Images should be (n, c, h, w), signals "
            "(n, channels, time)."
        ]
    return [note_scale(int(x.max()))] if x.dtype == np.uint16 else []


def note_scale(largest: int | None = None) -> str:
    """Note how images of 16 bits are scaled, and their largest value if it is known."""
    note = "16-bit images: values are divided by 65535."
    return note if largest is None else f"{note} The largest is {largest}."


def check_numbers(x: npt.NDArray[Any]) -> None:
    """Raise an error for samples that are not real numbers."""
    if x.dtype.kind not in "biuf":
        raise UserError(f"Expected real numbers in x. Found {x.dtype}. Encode texts and categories first.")


def as_floats(x: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Convert x to single precision; values that are too large become infinite."""
    with np.errstate(over="ignore"):
        return x.astype(np.float32)


def is_scaled(x: npt.NDArray[Any]) -> bool:
    """Tell whether values are scaled to [0, 1]: bytes, and images of 16 bits."""
    return x.dtype == np.uint8 or (x.ndim == 4 and x.dtype in SCALED)


def check_scale(x: npt.NDArray[Any]) -> None:
    """Raise an error for images of integers whose scale is unknown."""
    if x.ndim != 4 or x.dtype.kind not in "iu" or is_scaled(x):
        return
    low, high = int(x.min()), int(x.max())
    if low < 0 or high > 1:
        raise UserError(
            f"Expected images as uint8, uint16 or floats. Found {x.dtype} from {low} to {high}, of unknown scale. "
            "Convert them to uint8 or uint16, or to floats from 0 to 1."
        )


def _loses_spread(x: npt.NDArray[Any], single: npt.NDArray[np.float32]) -> bool:
    """Tell whether a feature or channel that varies is mostly rounded away in single precision, such as a time in
    seconds."""
    if x.dtype == np.float32:
        return False
    axes = pooled_axes(x)
    spread = x.std(axis=axes, dtype=np.float64)
    varies = spread > RESOLVED["float64"] * np.abs(single).max(axis=axes)
    return bool((varies & (np.abs(x - single).max(axis=axes) > LOST * spread)).any())


def finite_rows(x: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return the mask (n,) of the samples without NaN and infinity."""
    mask: npt.NDArray[np.bool_] = np.isfinite(x).all(axis=tuple(range(1, x.ndim)))
    return mask


def check_finite(x: npt.NDArray[Any]) -> None:
    """Raise an error for NaN and infinity."""
    _require_rows(finite_rows(x), ["NaN or infinity"] * len(x), "finite numbers in x")


def check_weights(sample_weight: npt.ArrayLike, n: int) -> npt.NDArray[np.float64]:
    """Convert the weights of n samples; UserError unless they are n finite numbers of at least 0."""
    weights = _array("sample_weight", sample_weight)
    if weights.shape != (n,) or weights.dtype.kind not in "biuf":
        raise UserError(f"Expected {n} numbers in sample_weight. Found {weights.dtype} of shape {weights.shape}.")
    _require_rows(np.isfinite(weights) & (weights >= 0), weights, "weights of at least 0 in sample_weight")
    return weights.astype(np.float64)


def _require_rows(valid: npt.NDArray[np.bool_], values: Sequence[Any] | npt.NDArray[Any], expected: str) -> None:
    """Raise an error that names the first row that is not valid."""
    rows = np.flatnonzero(~valid)
    if len(rows):
        found = values[rows[0]]
        text = repr(str(found)) if isinstance(found, np.str_) else str(found)
        raise UserError(f"Expected {expected}. Found {text} in row {rows[0]} ({len(rows)} such rows). Change them.")


def require_unmasked(what: str, values: object) -> None:
    """Raise an error for masked entries, which numpy would use as if they were not masked."""
    if np.ma.is_masked(values):
        raise UserError(f"Expected a value in every entry of {what}. Found masked ones. Remove or fill them.")


def _array(what: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    if hasattr(values, "toarray"):
        raise UserError(f"Expected a dense array {what}. Found a sparse one. Pass {what}.toarray().")
    require_unmasked(what, values)
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:  # ragged lists; tensors on another device or with gradients
        raise UserError(f"Expected an array {what}. Found {type(values).__name__} ({error}).") from error


def _check_shapes(shapes: Mapping[str, Shape]) -> None:
    x, y, domain = (shapes[name] for name in ("x", "y", "domain"))
    if len(x) not in KINDS or 0 in x:
        raise UserError(
            "Expected features (n, f), signals (n, channels, time) or images (n, c, h, w) in x, and not empty. Found "
            f"{x}. Reshape it."
        )
    is_soft = len(y) == 2 and y[1] > 1
    if not (y[:1] if is_soft else y) == domain == x[:1]:
        raise UserError(f"Expected y and domain of shape ({x[0]},). Found y {y} and domain {domain}.")


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
    if names is not None and not _are_names(names):
        raise bad_value(names_of, "a list of names", names)
    values = _texts(what, values)
    if values.dtype.kind == "f":
        expected = f"names or integers in {what}" + (" (a class for each sample, no regression)" if what == "y" else "")
        _require_rows(np.isfinite(values) & (values == np.round(values)), values, expected)
        values = values.astype(np.int64) if names is not None else values
    if names is not None and values.dtype.kind in "iu":
        if values.min() < 0 or values.max() >= len(names):
            raise UserError(f"Expected {what} within 0…{len(names) - 1}. Found {values.min()}…{values.max()}.")
        return values.astype(np.int64), [str(name) for name in names]
    distinct, numbers = np.unique(values, return_inverse=True)
    present = [str(value) for value in distinct.tolist()]
    if names is not None and (unnamed := sorted(set(present) - {str(name) for name in names})):
        raise UserError(f"Expected the names in {names_of} in {what}. Found {list_some(unnamed)}. Add them.")
    return numbers.astype(np.int64), present


def _are_names(names: object) -> bool:
    if not isinstance(names, Iterable) or isinstance(names, str | bytes):
        return False
    return all(isinstance(name, str | int | np.integer) for name in names)


def _texts(what: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert bytes and objects to texts (or integers); UserError if they are neither texts nor numbers."""
    if values.dtype.kind == "O":
        entries = list(values.flat)
        if entries and all(isinstance(entry, int | np.integer) and abs(int(entry)) < 2**63 for entry in entries):
            return values.astype(np.int64)
        are_texts = np.array([isinstance(entry, str) for entry in entries], dtype=np.bool_)
        _require_rows(are_texts, entries, f"a text or an integer in every entry of {what}")
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
    _require_rows(~np.isin(np.char.strip(values), MISSING), values, f"a name in every entry of {what}")
    distinct = np.unique(values)
    bare, counts = np.unique(np.char.strip(distinct), return_counts=True)
    if (counts > 1).any():
        twice = [str(value) for value in distinct if value.strip() == bare[counts > 1][0]]
        raise UserError(f"Expected names in {what} that differ by more than blanks. Found {twice}. Strip them.")


# .npz files


def read_npz(
    path: Path,
    required: Sequence[str],
    optional: Sequence[str] = (),
    check: Callable[[Mapping[str, Shape]], None] = lambda _: None,
) -> tuple[dict[str, npt.NDArray[Any]], list[str]]:
    """Read arrays of an untrusted .npz file by their names, in upper or lower case; also return the other names.

    `check` sees the shapes of the arrays first, by name in lower case: they may unpack to gigabytes.
    """
    try:
        with open_file(path) as file:
            start = file.peek(8)
            if not start.startswith(b"PK"):
                kind = "a single array of numpy.save" if start.startswith(b"\x93NUMPY") else "another kind of file"
                raise UserError(f"Expected an .npz file, as numpy.savez writes it, at {path}. Found {kind}.")
            with np.load(file, allow_pickle=False) as archive:
                names: dict[str, str] = {}
                for name in archive.files:
                    if other := names.get(name.lower()):
                        raise UserError(f"Expected other names in {path}. Found {other} and {name}. Remove one.")
                    names[name.lower()] = name
                if any(key.lower() not in names for key in required):
                    found, wanted = list_some(archive.files) or "none", ", ".join(required)
                    raise UserError(f"Expected {wanted} among the arrays of {path}. Found {found}. Rename or add some.")
                known = {key: names.pop(key.lower()) for key in (*required, *optional) if key.lower() in names}
                check({key.lower(): _read_shape(archive, name, path) for key, name in known.items()})
                needed, free = (
                    sum(archive.zip.getinfo(f"{name}.npy").file_size for name in known.values()),
                    free_memory(),
                )
                if free is not None and needed > free:
                    sizes = f"{free / GB:.1f} GB, in {path}. Found {needed / GB:,.1f} GB"
                    raise UserError(f"Expected arrays that fit into memory, {sizes}.")
                return {key: archive[name] for key, name in known.items()}, [*names.values()]
    except UserError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"Expected an .npz file at {path}. It cannot be read ({reason}). Check the file.") from error
    except Exception as error:  # BadZipFile, zlib.error, LZMAError, EOFError, ValueError, RuntimeError (a password), …
        reason = next(iter(str(error).splitlines()), type(error).__name__)  # some messages of numpy have several lines
        raise UserError(f"Expected a whole .npz file at {path}. It is damaged ({reason}). Save it again.") from error


def _read_shape(archive: Any, name: str, path: Path) -> Shape:
    """Read the shape of an array from its header; raise an error for Python objects."""
    with archive.zip.open(f"{name}.npy") as file:
        first = np.lib.format.read_magic(file) == (1, 0)
        read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    if dtype.hasobject:
        raise UserError(
            f"Expected numbers or texts in the array {name!r} of {path}. Found Python objects. Convert it: texts with "
            ".astype(str), numbers with .astype(float)."
        )
    return shape


def free_memory() -> int | None:
    """Return the bytes that can be allocated without swapping; None if they are unknown."""
    try:
        with open("/proc/meminfo") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None
