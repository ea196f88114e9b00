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
from fgmix.figures.arrays import Findings, make_slug
from fgmix.figures.budget import Budget, collect_budgets, describe_budget
from fgmix.figures.cd import Ranks, describe_ranks
from fgmix.figures.cost import Cost, collect_costs, describe_cost
from fgmix.figures.curves import Curves, describe_curves
from fgmix.figures.description import Chart
from fgmix.figures.differences import Differences, collect_differences, describe_differences
from fgmix.figures.domains import Domains, collect_domains, describe_domains
from fgmix.figures.flatness import Flatness, claim_flatness, describe_flatness
from fgmix.figures.line import Agreement, claim_agreement, collect_agreements, describe_agreement
from fgmix.figures.mixing import Mixing, collect_mixing, describe_mixing
from fgmix.figures.scores import Scores, claim_scores, describe_scores
from fgmix.figures.sensitivity import Sensitivity, collect_sensitivities, describe_sensitivity
from fgmix.figures.shift import Shift, describe_shift
from fgmix.figures.surface import Surface, claim_surface, describe_surface
from fgmix.figures.tsne import Embedding, describe_embedding
from fgmix.figures.weights import WeightEffect, describe_weights
from fgmix.records.files import read_bytes, write_bytes


class Kind(NamedTuple):
    """A kind of figure."""

    arrays: type  # the class of its arrays, whose name is saved with them
    describe: Callable[[Sequence[Any]], Chart]  # the description of the rows of a figure; most kinds have one row
    # The claim that it tests and the statistics of each row, in sentences
    claim: Callable[[Sequence[Any]], list[str]] = lambda _: []
    # The figures of this kind that records allow, each with the end of its name; None for kinds from weights
    collect: Callable[[Findings], Iterator[tuple[str, Any]]] | None = None

    @property
    def name(self) -> str:
        """The name in commands: that of its file."""
        return self.arrays.__module__.rpartition(".")[2]


KINDS = {
    kind.arrays.__name__: kind
    for kind in (
        Kind(Embedding, describe_embedding),
        Kind(Flatness, describe_flatness, claim_flatness),
        Kind(Surface, describe_surface, claim_surface),
        Kind(Scores, lambda rows: describe_scores(*rows), claim_scores),
        Kind(WeightEffect, lambda rows: describe_weights(*rows)),
        Kind(Curves, lambda rows: describe_curves(*rows)),
        Kind(Differences, lambda rows: describe_differences(*rows), collect=collect_differences),
        Kind(Domains, lambda rows: describe_domains(*rows), collect=collect_domains),
        Kind(Agreement, lambda rows: describe_agreement(*rows), claim_agreement, collect_agreements),
        Kind(Budget, lambda rows: describe_budget(*rows), collect=collect_budgets),
        Kind(Mixing, lambda rows: describe_mixing(*rows), collect=collect_mixing),
        Kind(Sensitivity, lambda rows: describe_sensitivity(*rows), collect=collect_sensitivities),
        Kind(Cost, lambda rows: describe_cost(*rows), collect=collect_costs),
        Kind(Ranks, lambda rows: describe_ranks(*rows)),
        Kind(Shift, lambda rows: describe_shift(*rows)),
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
    return replace(KINDS[type(rows[0]).__name__].describe(rows), id=id, command=command)


def state_claims(arrays: Any) -> list[str]:
    """State the claim of a figure and, for each row, its statistics, in sentences; none for kinds without a claim."""
    rows = split_rows(arrays)
    return KINDS[type(rows[0]).__name__].claim(rows)


def save_arrays(path: Path, arrays: Any) -> None:
    """Write the arrays of a figure to an `.npz` file, with the name of their kind."""
    packed = io.BytesIO()
    np.savez_compressed(packed, **_collect(arrays))
    write_bytes(path, packed.getvalue())


def _collect(arrays: Any) -> dict[str, Any]:
    """Collect the arrays by name; those of one of several rows have its number as a prefix."""
    rows = split_rows(arrays)
    content: dict[str, Any] = {}
    for number, row in enumerate(rows):
        prefix = f"{number}/" if len(rows) > 1 else ""
        content |= {prefix + each.name: np.asarray(getattr(row, each.name)) for each in fields(row)}
        content[f"{prefix}kind"] = np.asarray(type(row).__name__)
    return content


def holds_others(path: Path, arrays: Any) -> bool:
    """Tell whether a file exists and contains other arrays."""
    try:
        one, other = _collect(load_arrays(path)) if path.exists() else None, _collect(arrays)
    except UserError:  # damaged, or of another version
        return True
    return one is not None and not (
        one.keys() == other.keys()
        and all(
            np.array_equal(value, other[name], equal_nan=value.dtype.kind == other[name].dtype.kind == "f")
            for name, value in one.items()
        )
    )


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
