"""Load a table of features: a CSV or a Parquet file with the columns `label`, `domain` and one column per feature.

    label,domain,age,sex,cholesterol
    ill,cleveland,63,m,233
    healthy,zurich,41,f,

A CSV file with a column `path` is a manifest of images (`folders`); without it, a table. `group` and `sample_weight`
are optional, as in a manifest. Every other column is a feature: numbers, or categories if a value is not a number. A
column is declared by the end of its name: `ward:category` for numbers that are codes, `age:number`,
`patient_id:ignore`. Missing values are allowed in features: an empty cell or one of `MISSING`.

Categories become indicators (one feature per category), and numbers with missing values get an indicator of these. The
layout is that of the file. What is learned is learned on the training samples of each run, by `fit_standardisation`:
means, which replace missing numbers, scales, and which categories count. A category that the training samples do not
have is none of the known ones, in a held-out domain as in a new table.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fgmix.data.arrays import from_arrays
from fgmix.data.dataset import DomainDataset
from fgmix.data.files import open_file, read_csv
from fgmix.data.folders import list_some
from fgmix.errors import UserError, require_package
from fgmix.records.columns import Column, ColumnKind, Values, encode_columns

MISSING = ("", "?", "na", "n/a", "nan", "none", "null", "<na>", "nat")  # in lower case
REQUIRED = ("label", "domain")
WEIGHT = "sample_weight"
MOST_CATEGORIES = 200  # of a column: more are rather names, dates or identifiers
FEW_CATEGORIES = 20  # more of them, with fewer than `ROWS` rows each, are names unless they are declared
ROWS = 10
FEWEST = 50  # rows from which on distinct integers are reported as possible identifiers
DECLARED = ("number", "category", "ignore")


@dataclass(frozen=True)
class Table:
    """Columns of a file, by name without declaration: floats, or texts."""

    path: Path
    values: dict[str, Values]
    declared: dict[str, str]  # what the ends of names declare, by name

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))


def is_table(path: Path) -> bool:
    """Say whether a file is a table of features: a Parquet file, or a CSV file without the column `path`."""
    if path.suffix.lower() == ".parquet":
        return True
    if path.suffix.lower() != ".csv" or not path.is_file():
        return False
    try:
        with open_file(path) as file:
            header = next(csv.reader([file.readline(1_000_000).decode("utf-8-sig")]), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return False  # read as a manifest, which gives the reason
    return "path" not in {name.strip() for name in header}


def load_table(path: Path, *more: Path, columns: tuple[Column, ...] = ()) -> DomainDataset:
    """Load a table, or several as one, as a dataset of features.

    Args:
        path: the file, which gives the name and the columns.
        more: files whose rows follow.
        columns: those of a model, by which it is encoded; by default the table's own.
    """
    table = reduce(_append, map(read_table, (path, *more)))
    if columns:
        _require_columns(table, [column.name for column in columns], "the model was trained on")
    columns = columns or describe_columns(table)
    _check_classes(table)
    texts = {name: _as_names(table, name) for name in ("label", "domain", "group") if name in table.values}
    dataset = from_arrays(
        encode_columns(columns, _convert(table, columns)),
        texts["label"],
        texts["domain"],
        sample_weight=_read_weights(table) if WEIGHT in table.values else None,
        group=texts.get("group"),
        name=path.stem,
        columns=columns,
    )
    return replace(dataset, notes=(*dataset.notes, *_note_columns(table, columns)))


def encode_table(path: Path, columns: Sequence[Column]) -> npt.NDArray[np.float64]:
    """Read a table of new samples and encode it by the columns of a model; other columns are not used."""
    table = read_table(path, required=())
    _require_columns(table, [column.name for column in columns], "the model was trained on")
    return encode_columns(columns, _convert(table, columns))


def _append(table: Table, other: Table) -> Table:
    """Append the rows of another table; of its columns, those of the first are used, but for ignored ones."""
    names = [name for name in table.values if table.declared.get(name) != "ignore"]
    _require_columns(other, names, f"{table.path} has")
    values: dict[str, Values] = {}
    for name in names:
        pair = table.values[name], other.values[name]
        alike = len({each.dtype.kind for each in pair}) == 1  # one may have numbers, and the other texts
        values[name] = np.concatenate(pair if alike else list(map(_as_texts, pair)))
    return replace(table, values=values)


def _require_columns(table: Table, names: Sequence[str], source: str) -> None:
    lacking = [name for name in names if name not in table.values]
    if lacking:
        raise UserError(f"Expected the columns that {source} in {table.path}. Found no {list_some(lacking)}.")


def read_table(path: Path, required: Sequence[str] = REQUIRED) -> Table:
    """Read a CSV or a Parquet file; UserError if it is not one, or lacks a required column."""
    content = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    declared = {name.strip(): kind for name, _, kind in (each.rpartition(":") for each in content) if kind in DECLARED}
    values: dict[str, Values] = {}
    for name, column in content.items():
        bare, _, kind = name.rpartition(":")
        bare = bare.strip() if kind in DECLARED else name.strip()
        if not bare or bare in values:
            raise UserError(f"Expected columns with different names in {path}. Found {bare!r} twice or without a name.")
        values[bare] = column
    lacking = [name for name in required if name not in values]
    if lacking:
        found = f"Found no {', '.join(lacking)} among {list_some(list(map(repr, content)))}."
        advice = " Separate them by commas." if len(content) == 1 else ""
        raise UserError(
            f"Expected the columns {', '.join(required)} in {path}, and path if it lists images. {found}{advice}"
        )
    if not values or not len(next(iter(values.values()))):
        raise UserError(f"Expected rows in {path}. Found none.")
    return Table(path, values, declared)


def _read_csv(path: Path) -> dict[str, Values]:
    header, rows = read_csv(path)
    if not header:
        raise UserError(f"Expected a header and rows in {path}. Found nothing.")
    if len(set(header)) < len(header):
        raise UserError(f"Expected columns with different names in {path}. Found {list_some(header)}.")
    columns = zip(*(cells for _, cells in rows), strict=True) if rows else [()] * len(header)
    return {name: _blank_missing(column) for name, column in zip(header, columns)}


def _read_parquet(path: Path) -> dict[str, Values]:
    require_package("pyarrow", "parquet")
    import pyarrow
    from pyarrow import parquet, types

    try:
        with open_file(path) as file:
            table = parquet.read_table(file)
    except (OSError, pyarrow.ArrowException) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise UserError(f"Expected a Parquet file at {path}. It cannot be read ({reason}).") from error
    content: dict[str, Values] = {}
    for name in table.column_names:
        column = table.column(name)
        if types.is_floating(column.type) or (types.is_integer(column.type) and name not in (*REQUIRED, "group")):
            content[name] = np.asarray(column.cast(pyarrow.float64()).to_numpy(zero_copy_only=False))
        else:
            content[name] = _blank_missing(["" if value is None else str(value) for value in column.to_pylist()])
    return content


def _blank_missing(texts: Sequence[str]) -> Values:
    bare = (text.strip() for text in texts)
    return np.array(["" if text.lower() in MISSING else text for text in bare], dtype=object)


def _check_classes(table: Table) -> None:
    """Raise an error for labels that are fractions, as from_arrays does: targets of a regression."""
    numbers = _as_numbers(table.values["label"])
    if numbers is None:
        return
    fractions = np.flatnonzero(np.isfinite(numbers) & (numbers != np.round(numbers)))
    if len(fractions):
        raise UserError(
            f"Expected names or integers in the column label of {table.path} (a class for each sample, no regression). "
            f"Found {numbers[fractions[0]]:g} in row {fractions[0] + 1}."
        )


def _as_names(table: Table, name: str) -> list[str]:
    """Return labels, domains or groups as texts; a missing one is an error."""
    values = [f"{value:g}" if isinstance(value, float) else str(value) for value in table.values[name]]
    missing = next((i for i, value in enumerate(values) if value in ("", "nan")), None)
    if missing is not None:
        raise UserError(f"Expected a {name} in every row of {table.path}. Found none in row {missing + 1}. Fill it.")
    return values


def _read_weights(table: Table) -> npt.NDArray[np.float64]:
    weights = _as_numbers(table.values[WEIGHT])
    if weights is None:
        raise UserError(f"Expected numbers in the column {WEIGHT} of {table.path}. Found texts.")
    return weights


def describe_columns(table: Table) -> tuple[Column, ...]:
    """Describe the feature columns of a table, as declared or detected."""
    known = (*REQUIRED, "group", WEIGHT)
    names = [name for name in table.values if name not in known and table.declared.get(name) != "ignore"]
    if slips := [name for name in names if name.lower() in known]:
        raise UserError(f"Expected {slips[0].lower()} as a column of {table.path}. Found {slips[0]}. Rename it.")
    if not names:
        raise UserError(f"Expected columns of features beside label and domain in {table.path}. Found none.")
    return tuple(_describe(table, name) for name in names)


def _describe(table: Table, name: str) -> Column:
    declared, values = table.declared.get(name), table.values[name]
    numbers = _as_numbers(values)
    if declared == "number" and numbers is None:
        raise UserError(f"Expected numbers in the column {name!r} of {table.path}, as declared. Found texts.")
    kind: ColumnKind = "category" if numbers is None or declared == "category" else "number"
    if kind == "number" and numbers is not None:
        if np.isinf(numbers).any():
            raise UserError(f"Expected finite numbers in the column {name!r} of {table.path}. Found infinity.")
        return Column(name, kind, marks_missing=bool(np.isnan(numbers).any()))
    categories = tuple(sorted(set(_as_texts(values).tolist())))
    if declared is None and len(categories) > FEW_CATEGORIES and len(values) < ROWS * len(categories):
        raise UserError(
            f"Expected features in the column {name!r} of {table.path}. Found {len(categories)} names in {len(values)} "
            f"rows, such as {list_some(categories[:3])}. If they are patients or other objects, rename it 'group'; "
            f"else '{name}:ignore' or '{name}:category'."
        )
    if len(categories) > MOST_CATEGORIES:
        raise UserError(
            f"Expected at most {MOST_CATEGORIES} categories in the column {name!r} of {table.path}. Found "
            f"{len(categories)}, such as {list_some(categories[:3])}. Rename it '{name}:ignore', or group its values."
        )
    return Column(name, kind, categories)


def _as_numbers(values: Values) -> npt.NDArray[np.float64] | None:
    """Convert a column to floats, NaN for missing values; None if a value is not a number."""
    if values.dtype.kind == "f":
        return values
    try:
        return np.array([float(text) if text else np.nan for text in values], dtype=np.float64)
    except ValueError:
        return None


def _as_texts(values: Values) -> Values:
    if values.dtype.kind != "f":
        return values
    return np.array(["" if np.isnan(value) else f"{value:g}" for value in values], dtype=object)


def _convert(table: Table, columns: Sequence[Column]) -> dict[str, Values]:
    """Convert the values of columns to what their kind encodes; a text among numbers is an error."""
    converted: dict[str, Values] = {}
    for column in columns:
        values = table.values[column.name]
        numbers = _as_numbers(values) if column.kind == "number" else None
        if column.kind == "number" and numbers is None:
            raise UserError(f"Expected numbers in the column {column.name!r} of {table.path}, as in training.")
        converted[column.name] = _as_texts(values) if numbers is None else numbers
    return converted


def _note_columns(table: Table, columns: Sequence[Column]) -> list[str]:
    """Note categories, missing values and columns that may be identifiers."""
    values: Mapping[str, Any] = _convert(table, columns)
    categories = [f"{c.name} ({len(c.categories)})" for c in columns if c.kind == "category"]
    shares = {
        c.name: float(np.mean(values[c.name] == "" if c.kind == "category" else np.isnan(values[c.name])))
        for c in columns
    }
    missing = [f"{name} {share:.0%}" for name, share in shares.items() if share]
    numbers = {c.name: values[c.name] for c in columns if c.kind == "number" and len(table) >= FEWEST}
    distinct = [name for name, x in numbers.items() if len(np.unique(x)) == len(x) and (x == np.round(x)).all()]
    return [
        *([f"Columns of categories, with their number: {list_some(categories)}."] if categories else []),
        *([f"Columns with missing values: {list_some(missing)}."] if missing else []),
        *(
            f"Every value of the column {name!r} differs: if it identifies rows, rename it '{name}:ignore'."
            for name in distinct
        ),
    ]
