"""The style of every figure, with sizes and fonts for papers."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fgmix.analysis.arrays_file import save_arrays
from fgmix.records.files import make_folder, write_bytes

COLUMN, PAGE = 3.5, 7.16  # widths in inches, of a column and of the text, in two-column papers
DPI = 300

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
    "pdf.fonttype": 42,  # fonts as text, which journals require
    "figure.constrained_layout.use": True,
}

P = ParamSpec("P")


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Decorator: draw with `STYLE`, without changing matplotlib's global settings."""

    @wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return wrapped


def panels(
    columns: int, rows: int = 1, *, width: float = PAGE, height: float = 2.2, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """A figure of rows × columns axes, in reading order; `height` is that of a row."""
    figure = Figure(figsize=(width, rows * height))
    axes = figure.subplots(rows, columns, squeeze=False, **shared)
    return figure, list(axes.flat)


def label_row(ax: Axes, text: str) -> None:
    """Text at the left of a row, above the axis label."""
    ax.set_ylabel("\n".join(filter(None, (text, ax.get_ylabel()))))


def note(figure: Figure, text: str) -> None:
    """Small text below a figure."""
    width = int(figure.get_figwidth() * 22)  # characters of this size in a line
    figure.supxlabel("\n".join(textwrap.wrap(text, width)), fontsize=6, color="0.35")


def save_figure(figure: Figure, stem: Path, arrays: Any) -> list[Path]:
    """Write STEM.png, STEM.pdf and the arrays behind them as STEM.npz; returns the three paths."""
    make_folder(stem.parent)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "pdf", "npz")]
    with matplotlib.rc_context(STYLE):
        _save(figure, paths[0], dpi=DPI)
        _save(figure, paths[1], metadata={"CreationDate": None})  # equal figures are equal files
    save_arrays(paths[2], arrays)
    return paths


def _save(figure: Figure, path: Path, **how: Any) -> None:
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:], **how)
    write_bytes(path, drawn.getvalue())
