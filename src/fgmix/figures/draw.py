"""Draw a description with matplotlib, in sizes and fonts for papers: PNG, PDF and SVG.

This is the only module that imports matplotlib; pyplot and its global state are not used.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from fgmix.errors import bad_value
from fgmix.figures.description import INK, Axis, Band, Cells, Chart, Line, Panel, Points, Words
from fgmix.figures.kinds import save_arrays
from fgmix.records.files import make_folder, write_bytes
from fgmix.results.rounding import typeset

COLUMN, PAGE = 3.5, 7.16  # widths in inches, of a column and of the text, in two-column papers
DPI = 300
FORMATS = ("png", "pdf", "svg", "npz")
POINT = 0.6  # points on paper for a pixel of the page
LEVELS = 14  # of contours
BEHIND_WORDS = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6}
MANY = 60  # points from which on markers are smaller
TILTED = 42  # characters of the names below an axis from which on they are tilted
DENSE = 24  # names beside an axis from which on their rows are lower, so that about 50 fit on a page of paper

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
    "text.parse_math": False,  # a $ in a name is no formula
    "pdf.fonttype": 42,  # fonts as text, which journals require
    "svg.hashsalt": "fgmix",  # equal figures are equal files
    "figure.constrained_layout.use": True,
}

_SYMBOL = re.compile(r"\b([LA])_(flat|adv|ω)")
_UNDATED: dict[str, dict[Any, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}


@dataclass(frozen=True)
class Style:
    """How a figure is drawn for a paper.

    Args:
        width: in inches; by default as many columns as the panels need.
        titled: with title and caption, which a paper writes itself.
        font: family of fonts, such as "serif" or "Times New Roman"; by default matplotlib's.
    """

    width: float | None = None
    titled: bool = True
    font: str = ""

    def __post_init__(self) -> None:
        if self.width is not None and not 0.5 <= self.width <= 100:
            raise bad_value("width", "inches between 0.5 and 100", self.width)

    @property
    def settings(self) -> dict[Any, Any]:
        """Those of matplotlib."""
        return STYLE | ({"font.family": self.font} if self.font else {})


def draw(chart: Chart, style: Style = Style()) -> Figure:  # noqa: B008 (frozen)
    """Draw a figure, without changing matplotlib's global settings."""
    chart = chart if style.titled else replace(chart, title="", caption="")
    with matplotlib.rc_context(style.settings):
        n = len(chart.panels)
        columns = chart.columns or (n if n < 4 else 2 if n == 4 else 3)
        rows = [chart.panels[i : i + columns] for i in range(0, len(chart.panels), columns)]
        width = max(_measure_width(panel, columns) for panel in chart.panels)
        width = width if style.width is None else style.width / columns
        heights = [max(_measure_height(panel, width) for panel in row) for row in rows]
        figure = Figure(figsize=(columns * width, sum(heights)))
        axes = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
        for ax in axes.flat[len(chart.panels) :]:
            ax.set_axis_off()
        for r, row in enumerate(rows):
            for c, panel in enumerate(row):
                _draw_panel(axes[r, c], panel, width)
                below = rows[r + 1][c : c + 1] if r + 1 < len(rows) else ()
                _label(axes[r, c], panel, row[c - 1] if c else None, below, width)
                _draw_colour_bar(figure, axes[r, c], panel, row[c + 1 : c + 2])
        _frame(figure, chart)
        _set_symbols(figure)
        return figure


def save_figure(
    figure: Figure,
    stem: Path,
    arrays: Any,
    formats: Sequence[str] = FORMATS,
    style: Style = Style(),  # noqa: B008
) -> list[Path]:
    """Write STEM.png, STEM.pdf, STEM.svg, or the arrays behind them as STEM.npz; return the paths."""
    make_folder(stem.parent)
    paths = [stem.with_name(f"{stem.name}.{each}") for each in formats]
    for path, each in zip(paths, formats):
        if each == "npz":
            save_arrays(path, arrays)
        else:
            write_bytes(path, render(figure, each, style=style))
    return paths


def render(figure: Figure, format: str, style: Style = Style(), **how: Any) -> bytes:  # noqa: B008 (frozen)
    """Return the content of a figure's file; without dates: equal figures are equal files."""
    file = io.BytesIO()
    with matplotlib.rc_context(style.settings):
        figure.savefig(file, format=format, **{"dpi": DPI, "metadata": _UNDATED.get(format), **how})
    return file.getvalue()


# Sizes


def _measure_width(panel: Panel, columns: int) -> float:
    """Compute the width of a panel in inches: a column or a share of the page, more for long names or many cells."""
    if columns == 1:
        return min(PAGE, max(COLUMN, 2.2 + 0.055 * _measure_longest(panel.y)))
    cells = _find_cells(panel)
    needed = 0.28 * len(cells.x) if cells is not None and not cells.contours else 0.0
    return max(PAGE / columns, min(needed, 2 * COLUMN))


def _measure_height(panel: Panel, width: float) -> float:
    if panel.equal:
        (left, right), (bottom, top) = ((axis.low or 0.0, axis.high or 1.0) for axis in (panel.x, panel.y))
        return 0.75 + 0.8 * width * (top - bottom) / (right - left)
    if not panel.y.ticks:
        return 0.5 + (0.62 if _find_cells(panel) is None or panel.y.ticks is None else 0.8) * width
    rows = float(panel.y.high or 0) - float(panel.y.low or 0)
    below = 0.05 * _measure_longest(panel.x) if _are_tilted(panel.x) else 0.0
    each = 0.32 if _find_cells(panel) else max(0.15, 0.24 * min(1, DENSE / rows))
    return 0.75 + below + each * rows


def _measure_longest(axis: Axis) -> int:
    return max((len(text) for _, text in axis.ticks or ()), default=0)


def _are_tilted(axis: Axis) -> bool:
    return _measure_longest(axis) * len(axis.ticks or ()) > TILTED


def _find_cells(panel: Panel) -> Cells | None:
    return next((mark for mark in panel.marks if isinstance(mark, Cells)), None)


# Panels


def _draw_panel(ax: Axes, panel: Panel, width: float) -> None:
    for mark in panel.marks:
        _DRAW[type(mark)](ax, mark)
    ax.set_title(_wrap(panel.title, width))
    ax.set_xlim(*_measure_extent(panel.x, [mark.x for mark in panel.marks]))
    ax.set_ylim(*_measure_extent(panel.y, [y for mark in panel.marks for y in (mark.y, getattr(mark, "top", ()))]))
    for axis, shown in ((panel.x, ax.xaxis), (panel.y, ax.yaxis)):
        shown.set_inverted(axis.flipped)
        if axis.ticks is None:
            shown.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        else:
            shown.set_ticks([at for at, _ in axis.ticks], [text for _, text in axis.ticks])
            if axis.high is not None:  # names
                shown.set_tick_params(length=0)
    if _are_tilted(panel.x):
        steep = len(panel.x.ticks or ()) > 8
        ax.tick_params(axis="x", labelrotation=90 if steep else 30)
        for label in ax.get_xticklabels():
            label.set(ha="center" if steep else "right", rotation_mode="default" if steep else "anchor")
    if panel.equal:
        ax.set_aspect("equal")
    if panel.x.ticks == panel.y.ticks == ():
        ax.spines[:].set_visible(True)
    elif panel.y.ticks and _find_cells(panel) is None:
        ax.grid(axis="y", color="0.92", linewidth=0.6)
        ax.set_axisbelow(True)


def _wrap(text: str, width: float) -> str:
    """Break a title or a label into lines: before a bracket, after a colon or a comma where two lines are enough."""
    text, room = typeset(text), int(15 * width)
    for sign in (" (", ": ", ", "):
        first, found, rest = text.partition(sign)
        if len(text) > room and found and max(len(first), len(rest)) < room:
            return f"{first}{sign.rstrip(' (')}\n{sign.strip(' :,')}{rest}"
    return "\n".join(textwrap.wrap(text, room))


def _measure_extent(axis: Axis, values: Sequence[Any]) -> tuple[float, float]:
    """Compute where an axis starts and ends: as described, or around all values, also where a curve has none."""
    every = np.concatenate([np.asarray(each, dtype=np.float64) for each in values])
    finite = every[np.isfinite(every)] if np.isfinite(every).any() else np.array([0.0, 1.0])
    low, high = float(finite.min()), float(finite.max())
    margin = 0.05 * (high - low) or 0.1 * abs(high) or 0.5
    return low - margin if axis.low is None else axis.low, high + margin if axis.high is None else axis.high


def _label(ax: Axes, panel: Panel, left: Panel | None, below: Sequence[Panel], width: float) -> None:
    """Label the axes; not again where the panel to the left or below has the same."""
    if left is None or left.y != panel.y:
        ax.set_ylabel(panel.y.label)
    elif panel.y.high is not None:
        ax.tick_params(axis="y", labelleft=False)
    if not below or below[0].x != panel.x:
        ax.set_xlabel(_wrap(panel.x.label, width))
    elif panel.x.high is not None:
        ax.tick_params(axis="x", labelbottom=False)


def _draw_colour_bar(figure: Figure, ax: Axes, panel: Panel, right: Sequence[Panel]) -> None:
    """Draw the scale of a heat map, if it has a label, to the right of the last panel with that scale."""
    cells = _find_cells(panel)
    if cells is None or not cells.label:
        return
    other = _find_cells(right[0]) if right else None
    if other is None or (other.label, other.low, other.high) != (cells.label, cells.low, cells.high):
        ticks = MaxNLocator(5) if cells.power == 1 else _choose_levels(cells)[::3]
        beside = ax.inset_axes((1.04, 0.0, 0.05, 1.0))  # as high as the panel, whatever the layout leaves for it
        figure.colorbar(ax.collections[0], cax=beside, label=cells.label, format="%.3g", ticks=ticks)


# Marks


def _draw_points(ax: Axes, mark: Points) -> None:
    size = 5.5 if mark.outlined else 2.2 if len(mark.x) > MANY else 3.4
    thin = mark.marker in "x+"
    ax.plot(
        mark.x,
        mark.y,
        linestyle="none",
        color=_to_colour(mark.colour),
        marker=mark.marker,
        markersize=size * (1.5 if mark.marker == "*" else 1.3 if thin else 1),
        markeredgecolor="black" if mark.outlined else None,
        markeredgewidth=0.8 if mark.outlined else 0.6 if thin else 0,
        alpha=0.35 if mark.faint else None,
        zorder=3 if mark.outlined else None,
        clip_on=not mark.outlined,  # the highest accuracy may be at the edge of the plane
    )


def _draw_line(ax: Axes, mark: Line) -> None:
    ax.plot(
        mark.x,
        mark.y,
        color=_to_colour(mark.colour),
        linestyle="--" if mark.dashed else "-",
        linewidth=POINT * mark.width,
        solid_capstyle="butt",
    )


def _draw_band(ax: Axes, mark: Band) -> None:
    ax.fill_between(mark.x, mark.y, mark.top, color=_to_colour(mark.colour), alpha=0.2, linewidth=0)


def _draw_words(ax: Axes, mark: Words) -> None:
    align = {"start": "left", "middle": "center", "end": "right"}[mark.anchor]
    for x, y, text in zip(mark.x, mark.y, mark.text):
        how: dict[str, Any] = {"color": _to_colour(mark.colour), "clip_on": True, "zorder": 4, "bbox": BEHIND_WORDS}
        ax.text(x, y, typeset(text), ha=align, va="center", fontsize=6, **how)


def _draw_cells(ax: Axes, mark: Cells) -> None:
    value = np.ma.masked_invalid(np.asarray(mark.value, dtype=np.float64))
    norm = PowerNorm(mark.power, mark.low, mark.high)
    if mark.contours:
        extend = "max" if value.max() > mark.high else "neither"
        ax.contourf(mark.x, mark.y, value, _choose_levels(mark), cmap=mark.colours, norm=norm, extend=extend)
        return
    ax.pcolormesh(mark.x, mark.y, value, cmap=mark.colours, norm=norm, shading="nearest", rasterized=value.size > 2000)
    light = colormaps[mark.colours](norm(value.filled(mark.high)))[..., :3] @ (0.3, 0.6, 0.1)  # seen brightness
    dark = ~value.mask & (light < 0.5)
    for y, texts, on_dark in zip(mark.y, mark.written, dark):
        for x, text, each in zip(mark.x, texts, on_dark):
            ax.text(x, y, typeset(text), ha="center", va="center", fontsize=6, color="white" if each else "black")


def _choose_levels(cells: Cells) -> Any:
    """Choose the levels of contours, as close as the colours change."""
    return cells.low + (cells.high - cells.low) * np.linspace(0, 1, LEVELS) ** (1 / cells.power)


def _to_colour(colour: str) -> str:
    return "black" if colour == INK else colour


_DRAW: dict[type, Callable[[Axes, Any], None]] = {
    Points: _draw_points,
    Line: _draw_line,
    Band: _draw_band,
    Words: _draw_words,
    Cells: _draw_cells,
}


# Around the panels


def _frame(figure: Figure, chart: Chart) -> None:
    """Add the title, the legend and the caption, and the height that they need."""
    width, height = figure.get_size_inches()
    title = textwrap.wrap(typeset(chart.title), int(15 * width))
    height += 0.16 * len(title)
    handles = _list_handles(chart)
    if len(handles) > 1:
        columns = _count_columns([*handles], width)
        height += 0.16 * -(-len(handles) // columns)
        figure.legend(
            handles.values(),
            [*map(typeset, handles)],
            title="\n".join(title),
            title_fontsize=9,
            loc="outside upper center",
            ncols=columns,
            columnspacing=1.2,
        )
    elif title:
        figure.suptitle("\n".join(title), fontsize=9)
    lines = textwrap.wrap(typeset(chart.caption.partition("\n")[0]), int(20 * width))
    if lines:
        figure.supxlabel("\n".join(lines), fontsize=6, color="0.35")
        height += 0.1 * len(lines)
    figure.set_size_inches(width, height)


def _count_columns(names: Sequence[str], width: float) -> int:
    """Count the columns of a legend with the fewest rows that fit; matplotlib fills one column after the other."""
    for rows in range(1, len(names)):
        columns = -(-len(names) // rows)
        longest = [max(map(len, part)) for part in np.array_split(names, columns)]
        if sum(longest) + 6 * columns <= 14 * width:
            return columns
    return 1


def _set_symbols(figure: Figure) -> None:
    """Set the subscripts of L_flat, L_adv and A_ω below the line, in texts without a $ of their own."""
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if _SYMBOL.search(words := text.get_text()) and "$" not in words:
            text.set(text=_SYMBOL.sub(r"$\1_{\\mathrm{\2}}$", words), parse_math=True)


def _list_handles(chart: Chart) -> dict[str, Line2D]:
    """List the signs of the legend by name: the line and the marker of the name's last marks."""
    signs: dict[str, dict[str, Any]] = {}
    for mark in (mark for panel in chart.panels for mark in panel.marks):
        if isinstance(mark, Line | Points) and mark.name:
            sign = signs.setdefault(mark.name, {"linestyle": "none"})
            sign["color"] = _to_colour(mark.colour)
            if isinstance(mark, Line):
                sign |= {"linestyle": "--" if mark.dashed else "-", "linewidth": min(4.0, POINT * mark.width)}
            else:
                edge = "black" if mark.outlined else sign["color"]
                sign |= {"marker": mark.marker, "markersize": 4, "markeredgecolor": edge, "markeredgewidth": 0.6}
    lines_first = sorted(signs.items(), key=lambda each: each[1]["linestyle"] == "none")
    return {name: Line2D([], [], **sign) for name, sign in lines_first}
