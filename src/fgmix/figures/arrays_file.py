"""Save and load the arrays of a figure: an `.npz` file, which contains nothing that needs unpickling."""

from __future__ import annotations

import io
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fgmix.errors import UserError
from fgmix.figures.arrays import Rows
from fgmix.figures.kinds import KINDS
from fgmix.records.files import read_bytes, write_bytes


def save_arrays(path: Path, arrays: Any) -> None:
    """Write the arrays of a figure, with the name of their kind.

    Args:
        path: the `.npz` file, written atomically.
        arrays: of one of `KINDS`, or `Rows` of them.
    """
    packed = io.BytesIO()
    np.savez_compressed(packed, **_collect(arrays))
    write_bytes(path, packed.getvalue())


def _collect(arrays: Any) -> dict[str, Any]:
    """Collect the arrays by name; those of a row have its number as a prefix."""
    if isinstance(arrays, Rows):
        rows = [(f"{row}/", _collect(part)) for row, part in enumerate(arrays.parts)]
        return {prefix + name: value for prefix, of_row in rows for name, value in of_row.items()}
    content: dict[str, Any] = {each.name: np.asarray(getattr(arrays, each.name)) for each in fields(arrays)}
    return {**content, "kind": np.asarray(type(arrays).__name__)}


def have_equal_arrays(first: Any, second: Any) -> bool:
    """Tell whether two figures have equal arrays."""
    one, other = _collect(first), _collect(second)
    return one.keys() == other.keys() and all(_are_equal(value, other[name]) for name, value in one.items())


def _are_equal(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    numbers = one.dtype.kind == other.dtype.kind == "f"
    return np.array_equal(one, other, equal_nan=numbers)


def load_arrays(path: Path) -> Any:
    """Load the arrays that `save_arrays` wrote, as the same kind."""
    data = read_bytes(path)
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            content = {name: archive[name] for name in archive.files}
    except Exception as error:  # of numpy, zipfile or zlib, or out of memory
        raise UserError(
            f"Expected the arrays of a figure at {path}. Found a file of another kind, or a damaged one. Compute the "
            "figure again."
        ) from error
    rows: dict[str, dict[str, Any]] = {}
    for name, value in content.items():
        row, slash, own = name.partition("/")
        if slash:
            rows.setdefault(row, {})[own] = value
    return Rows(tuple(_build(path, row) for row in rows.values())) if rows else _build(path, content)


def _build(path: Path, content: dict[str, Any]) -> Any:
    known = KINDS.get(str(content.pop("kind", "")))
    kind = known and known.arrays
    if kind is None or not _list_required(kind) <= content.keys() <= {each.name for each in fields(kind)}:
        raise UserError(
            f"Expected an .npz file that this version of `fgmix plot` wrote. Found another file at {path}. Compute the "
            "figure again."
        )
    return kind(**{name: value.item() if value.ndim == 0 else value for name, value in content.items()})


def _list_required(kind: type) -> set[str]:
    """List the fields without a default."""
    return {each.name for each in fields(kind) if each.default_factory is MISSING and each.default is MISSING}
