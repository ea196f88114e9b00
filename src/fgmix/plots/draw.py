"""The figure of arrays of any kind, fresh or from a file: what `fgmix plot` draws."""

from __future__ import annotations

from collections.abc import Callable
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

_DRAW: dict[type, Callable[[Any], Figure]] = {
    kinds.Embedding: tsne,
    kinds.Flatness: flatness,
    kinds.Surface: surface,
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
    """The figure of arrays of any kind."""
    return _DRAW[type(arrays)](arrays)
