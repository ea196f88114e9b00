"""fgmix plot: figures of runs and sweeps, each as PNG, PDF, SVG and the arrays behind it. Here they are saved."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fgmix.escape import print_lines

Out = Annotated[Path, typer.Option(help="folder for the figure")]
FIGURES = Path("figures")


def save(arrays: Any, out: Path, name: str) -> None:
    """Draw and save a figure; print its files and its claims."""
    from fgmix.figures.draw import draw, save_figure
    from fgmix.figures.kinds import describe, holds_others, state_claims

    drawn = draw(describe(arrays))
    if holds_others(out / f"{name}.npz", arrays):
        print(f"note: replaced {out / name}, which showed something else", file=sys.stderr)
    print_lines([*map(str, save_figure(drawn, out / name, arrays)), *state_claims(arrays)])
