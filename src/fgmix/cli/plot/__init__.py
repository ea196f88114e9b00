"""fgmix plot: figures of runs and sweeps, each as PNG, PDF, SVG and the arrays behind it. Here they are saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fgmix.terminal import print_lines, print_notes

if TYPE_CHECKING:
    from fgmix.figures.plot import Plot

Out = Annotated[Path, typer.Option(help="folder for the figure")]
FIGURES = Path("figures")


def save(plot: Plot, out: Path, name: str = "") -> None:
    """Draw and save a figure, under another name if one is given; print its files and its claims."""
    stem = out / (name or plot.name)
    replaced = plot.replaces_another(stem)
    files = plot.save(stem)
    if replaced:
        print_notes(f"replaced {stem}, which showed something else")
    print_lines([*map(str, files), *plot.claims])
