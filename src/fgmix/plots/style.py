"""How every figure looks: sizes and fonts of a paper, and one colour for one thing everywhere.

Colours are Okabe and Ito's and Tol's, which people with any colour vision can tell apart. Where there are more things
than colours, markers tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fgmix.analysis.arrays import save_arrays
from fgmix.benchmark.labels import METHODS
from fgmix.files import make_folder
from fgmix.seeding import seed_hash

COLUMN, PAGE = 3.5, 7.16  # widths in inches, of a column and of the text, in two-column papers
DPI = 300
GREY = "#999999"

STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3,
    "pdf.fonttype": 42,  # fonts as text: what journals ask for
    "figure.constrained_layout.use": True,
}

_OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
_TOL_MUTED = ("#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499")
_OWN = {
    "ERM": "#000000",
    "FGMix": "#D55E00",
    "FGMix-A": "#0072B2",
    "FGMix-B": "#56B4E9",
    "FGMix-C": "#009E73",
    "FGMix-D": "#CC79A7",
    "FGMix-E": "#E69F00",
    "FGMix-F": "#8C6D31",
}
_OTHERS = [label for label in METHODS.values() if label not in _OWN]
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


class Look(NamedTuple):
    """Colour and marker of a thing."""

    colour: str
    marker: str


P = ParamSpec("P")


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Decorator: draw within `STYLE`, and leave matplotlib's settings as they were."""

    @wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return wrapped


def domain_looks(domains: Sequence[str]) -> dict[str, Look]:
    """Looks of a dataset's domains, by their place in it; pass all of them, drawn or not.

    >>> domain_looks(["art", "photo"])["photo"]
    Look(colour='#E69F00', marker='s')
    """
    return {
        str(name): Look(_OKABE_ITO[i % len(_OKABE_ITO)], MARKERS[i % len(MARKERS)]) for i, name in enumerate(domains)
    }


def method_look(label: str) -> Look:
    """The look of a method, by its name alone; averaged weights ("X + SWA") look like the method.

    >>> method_look("FGMix + SWA") == method_look("FGMix")
    True
    """
    name = label.split(" + ")[0].removesuffix(" (paper)")
    if name in _OWN:
        return Look(_OWN[name], MARKERS[list(_OWN).index(name)])
    place = _OTHERS.index(name) if name in _OTHERS else seed_hash("method", name)
    return Look(_TOL_MUTED[place % len(_TOL_MUTED)], MARKERS[place // len(_TOL_MUTED) % len(MARKERS)])


def line_style(model: str) -> str:
    """Averaged weights are dashed."""
    return "-" if model == "raw" else "--"


def panels(
    columns: int, rows: int = 1, *, width: float = PAGE, height: float = 2.2, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """A figure of rows × columns axes, in reading order; `height` is a row's."""
    figure = Figure(figsize=(width, rows * height))
    axes = figure.subplots(rows, columns, squeeze=False, **shared)
    return figure, list(axes.flat)


def save_figure(figure: Figure, stem: Path, arrays: Any) -> list[Path]:
    """Write STEM.png, STEM.pdf and the arrays behind them as STEM.npz; returns the three paths."""
    make_folder(stem.parent)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "pdf", "npz")]
    with matplotlib.rc_context(STYLE):
        figure.savefig(paths[0], dpi=DPI)
        figure.savefig(paths[1], metadata={"CreationDate": None})  # equal figures are equal files
    save_arrays(paths[2], arrays)
    return paths
