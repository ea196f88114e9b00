"""fgmix plot: figures of runs and sweeps, each as PNG, PDF, SVG and the arrays behind it. Here they are saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgmix.cli.options import Checked, Flags, declare, split_names
from fgmix.terminal import print_lines, print_notes

if TYPE_CHECKING:
    from fgmix.figures.plot import Plot


@dataclass(frozen=True)
class Saving(Checked):
    """Where a figure is saved, and how it is drawn."""

    out: str = declare("figures", help="folder for the figure")
    format: str = declare("", help="png, pdf, svg or npz (the arrays), comma-separated; all by default")
    width: float | None = declare(None, help="inches; a column of a paper has 3.5, a page 7.16", gt=0, metavar="INCHES")
    font: str = declare("", help="family of fonts, such as serif")
    title: bool = declare(True, help="draw the title and the caption, which a paper writes itself")


SAVING = Flags(Saving, everyday=("out",))


def save(plot: Plot, saving: Mapping[str, Any], name: str = "", *, beside: Path | None = None) -> None:
    """Draw and save a figure; print its files and its claims.

    Args:
        plot: the figure.
        saving: values of `Saving` that the user has given.
        name: of its files, instead of its own.
        beside: folder to save it in if the user has given none.
    """
    how = Saving(**saving)
    stem = (beside if beside and "out" not in saving else Path(how.out)) / (name or plot.name)
    replaced = plot.replaces_another(stem)
    files = plot.save(stem, split_names([how.format]), width=how.width, font=how.font, titled=how.title)
    if replaced:
        print_notes(f"replaced {stem}, which showed something else")
    print_lines([*map(str, files), *plot.claims])
