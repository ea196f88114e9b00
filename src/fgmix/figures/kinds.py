"""The kinds of figures whose arrays can be saved: a new kind is its file, a line here and its command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fgmix.figures.ablation import Ablation, describe_ablation
from fgmix.figures.arrays import split_rows
from fgmix.figures.cd import Ranks, describe_ranks
from fgmix.figures.cost import Cost, describe_cost
from fgmix.figures.curves import Curves, describe_curves
from fgmix.figures.description import Chart
from fgmix.figures.flatness import Flatness, claim_flatness, describe_flatness
from fgmix.figures.scores import Scores, claim_scores, describe_scores
from fgmix.figures.sensitivity import Sensitivity, describe_sensitivity
from fgmix.figures.shift import Shift, describe_shift
from fgmix.figures.surface import Surface, claim_surface, describe_surface
from fgmix.figures.tsne import Embedding, describe_embedding
from fgmix.figures.weights import WeightEffect, describe_weights


class Kind(NamedTuple):
    """A kind of figure.

    Args:
        arrays: the class of its arrays, whose name is saved with them.
        describe: the description of the rows of a figure; most kinds have one row.
        claim: the claim that it tests and the statistics of each row, in sentences.
    """

    arrays: type
    describe: Callable[[Sequence[Any]], Chart]
    claim: Callable[[Sequence[Any]], list[str]] = lambda _: []


KINDS = {
    kind.arrays.__name__: kind
    for kind in (
        Kind(Embedding, describe_embedding),
        Kind(Flatness, describe_flatness, claim_flatness),
        Kind(Surface, describe_surface, claim_surface),
        Kind(Scores, lambda rows: describe_scores(*rows), claim_scores),
        Kind(WeightEffect, lambda rows: describe_weights(*rows)),
        Kind(Curves, lambda rows: describe_curves(*rows)),
        Kind(Sensitivity, lambda rows: describe_sensitivity(*rows)),
        Kind(Ablation, lambda rows: describe_ablation(*rows)),
        Kind(Cost, lambda rows: describe_cost(*rows)),
        Kind(Ranks, lambda rows: describe_ranks(*rows)),
        Kind(Shift, lambda rows: describe_shift(*rows)),
    )
}


def describe(arrays: Any, id: str = "", command: str = "") -> Chart:
    """Describe a figure, for `draw` and for the page.

    Args:
        arrays: of one of `KINDS`, or rows of them.
        id: for links to it.
        command: the command that draws it on paper.
    """
    rows = split_rows(arrays)
    return replace(KINDS[type(rows[0]).__name__].describe(rows), id=id, command=command)


def state_claims(arrays: Any) -> list[str]:
    """State the claim of a figure and, for each row, its statistics, in sentences; none for kinds without a claim."""
    rows = split_rows(arrays)
    return KINDS[type(rows[0]).__name__].claim(rows)
