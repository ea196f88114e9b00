"""The figure of arrays of any kind, computed or loaded from a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.figure import Figure

from fgmix.analysis import arrays as kinds
from fgmix.plots.ablation import ablation
from fgmix.plots.cd import cd
from fgmix.plots.cost import cost
from fgmix.plots.curves import curves
from fgmix.plots.flatness import flatness
from fgmix.plots.scores import scores
from fgmix.plots.sensitivity import sensitivity
from fgmix.plots.shift import shift
from fgmix.plots.surface import surface
from fgmix.plots.tsne import tsne
from fgmix.plots.weights import weights

_ROWS: dict[type, Callable[[Sequence[Any]], Figure]] = {  # one row for each test domain
    kinds.Embedding: tsne,
    kinds.Flatness: flatness,
    kinds.Surface: surface,
}
_DRAW: dict[type, Callable[[Any], Figure]] = {
    kinds.Scores: scores,
    kinds.WeightEffect: weights,
    kinds.Curves: curves,
    kinds.Sensitivity: sensitivity,
    kinds.Ablation: ablation,
    kinds.Cost: cost,
    kinds.Ranks: cd,
    kinds.Shift: shift,
}


def draw(arrays: Any) -> Figure:
    """The figure of arrays of any kind, or of rows of them."""
    parts = kinds.parts_of(arrays)
    kind = type(parts[0])
    return _ROWS[kind](parts) if kind in _ROWS else _DRAW[kind](arrays)
