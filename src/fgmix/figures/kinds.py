"""The kinds of figures whose arrays can be saved: a new kind is its file, a line here and its command.

A figure is the arrays of one of `KINDS`, or a list of them: one row for each test domain. Its file is an `.npz` file,
which contains nothing that needs unpickling.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fgmix.errors import UserError
from fgmix.figures import curves, differences, flatness, scatter, surface, tables, tsne, weights
from fgmix.figures.arrays import Findings, make_slug
from fgmix.figures.description import Chart
from fgmix.records.files import read_bytes, write_bytes


class Kind(NamedTuple):
    """A kind of figure."""

    name: str  # in commands
    arrays: type  # the class of its arrays, whose name is saved with them
    describe: Callable[..., Chart]  # the description of its arrays
    # The claim that it tests and the statistics of each row, in sentences
    claim: Callable[[Sequence[Any]], list[str]] = lambda _: []
    # The figures of this kind that records allow, each with the end of its name; None for kinds from weights
    collect: Callable[[Findings], Iterator[tuple[str, Any]]] | None = None
    many: bool = False  # whether a figure may have several rows, which are described together


KINDS = {
    kind.arrays.__name__: kind
    for kind in (
        Kind("tsne", tsne.Embedding, tsne.describe_embedding, many=True),
        Kind("flatness", flatness.Flatness, flatness.describe_flatness, flatness.claim_flatness, many=True),
        Kind("surface", surface.Surface, surface.describe_surface, surface.claim_surface, many=True),
        Kind("scores", scatter.Scores, scatter.describe_scores, scatter.claim_scores),
        Kind("weights", weights.WeightEffect, weights.describe_weights),
        Kind("curves", curves.Curves, curves.describe_curves),
        Kind(
            *("differences", differences.Differences, differences.describe_differences),
            collect=differences.collect_differences,
        ),
        Kind("domains", tables.Domains, tables.describe_domains, collect=tables.collect_domains),
        Kind(
            *("line", scatter.Agreement, scatter.describe_agreement),
            *(scatter.claim_agreement, scatter.collect_agreements),
        ),
        Kind("budget", scatter.Budget, scatter.describe_budget, collect=scatter.collect_budgets),
        Kind("mixing", scatter.Mixing, scatter.describe_mixing, collect=scatter.collect_mixing),
        Kind("sensitivity", tables.Sensitivity, tables.describe_sensitivity, collect=tables.collect_sensitivities),
        Kind("cd", differences.Ranks, differences.describe_ranks),
    )
}
RESULTS = {kind.name: kind.collect for kind in KINDS.values() if kind.collect}  # kinds of `fgmix plot results`


def collect_figures(findings: Findings, only: str = "") -> Iterator[tuple[str, str, Any]]:
    """Collect the figures that records allow, of one kind or of all: the kind, the figure's name and its arrays."""
    for kind, collect in RESULTS.items():
        for end, arrays in collect(findings) if only in ("", kind) else ():
            yield kind, "-".join(filter(None, (kind, make_slug(end)))), arrays


def split_rows(arrays: Any) -> list[Any]:
    """Return the rows of a figure, one or more."""
    return arrays if isinstance(arrays, list) else [arrays]


def describe(arrays: Any, id: str = "", command: str = "") -> Chart:
    """Describe a figure, for `draw` and for the page, which links to its id and shows the command that draws it."""
    rows = split_rows(arrays)
    kind = KINDS[type(rows[0]).__name__]
    return replace(kind.describe(rows) if kind.many else kind.describe(*rows), id=id, command=command)


def state_claims(arrays: Any) -> list[str]:
    """State the claim of a figure and, for each row, its statistics, in sentences; none for kinds without a claim."""
    rows = split_rows(arrays)
    return KINDS[type(rows[0]).__name__].claim(rows)


def save_arrays(path: Path, arrays: Any) -> None:
    """Write the arrays of a figure to an `.npz` file, with the name of their kind."""
    write_bytes(path, _pack(arrays))


def holds_others(path: Path, arrays: Any) -> bool:
    """Tell whether a file exists and contains other arrays."""
    return path.exists() and read_bytes(path) != _pack(arrays)


def _pack(arrays: Any) -> bytes:
    """Pack the arrays by name; those of one of several rows have its number as a prefix."""
    rows = split_rows(arrays)
    content: dict[str, Any] = {}
    for number, row in enumerate(rows):
        prefix = f"{number}/" if len(rows) > 1 else ""
        content |= {prefix + each.name: np.asarray(getattr(row, each.name)) for each in fields(row)}
        content[f"{prefix}kind"] = np.asarray(type(row).__name__)
    packed = io.BytesIO()
    np.savez_compressed(packed, **content)
    return packed.getvalue()


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
    return [_build(path, row) for row in rows.values()] if rows else _build(path, content)


def _build(path: Path, content: dict[str, Any]) -> Any:
    known = KINDS.get(str(content.pop("kind", "")))
    every = fields(known.arrays) if known else ()
    required = {each.name for each in every if each.default is MISSING and each.default_factory is MISSING}
    if known is None or not required <= content.keys() <= {each.name for each in every}:
        raise UserError(
            f"Expected an .npz file that this version of `fgmix plot` wrote. Found another file at {path}. Compute the "
            "figure again."
        )
    return known.arrays(**{name: value.item() if value.ndim == 0 else value for name, value in content.items()})
