"""Charts of the page from the arrays of figures, one kind per file; names, colours and markers as in the PDF."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fgmix.analysis import arrays as kinds
from fgmix.report.charts import Chart
from fgmix.report.figures.ablation import ablation
from fgmix.report.figures.cd import cd
from fgmix.report.figures.cost import cost
from fgmix.report.figures.curves import curves
from fgmix.report.figures.differences import differences as differences
from fgmix.report.figures.flatness import flatness
from fgmix.report.figures.scores import scores
from fgmix.report.figures.sensitivity import sensitivity
from fgmix.report.figures.shift import shift
from fgmix.report.figures.surface import surface
from fgmix.report.figures.tsne import tsne
from fgmix.report.figures.weights import weights

_ROWS: dict[type, Callable[[str, Sequence[Any], str], Chart]] = {  # one row for each test domain
    kinds.Embedding: tsne,
    kinds.Flatness: flatness,
    kinds.Surface: surface,
}
_CHARTS: dict[type, Callable[[str, Any, str], Chart]] = {
    kinds.Scores: scores,
    kinds.WeightEffect: weights,
    kinds.Curves: curves,
    kinds.Sensitivity: sensitivity,
    kinds.Ablation: ablation,
    kinds.Cost: cost,
    kinds.Ranks: cd,
    kinds.Shift: shift,
}


def chart(id: str, arrays: Any, command: str = "") -> Chart:
    """The chart of arrays of any kind.

    Args:
        id: for links to it.
        arrays: one of `fgmix.analysis.arrays.KINDS`, or rows of them.
        command: the command that draws it as PDF and PNG.
    """
    parts = kinds.parts_of(arrays)
    kind = type(parts[0])
    return _ROWS[kind](id, parts, command) if kind in _ROWS else _CHARTS[kind](id, arrays, command)
