"""Save a figure of `fgmix plot` as PNG, PDF and SVG, with the arrays behind it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fgmix.errors import UserError

Out = Annotated[Path, typer.Option(help="folder for the figure")]
FIGURES = Path("figures")


def redraw(files: Annotated[list[Path], typer.Argument(help=".npz files that `fgmix plot` wrote")]) -> None:
    """Draw figures again from their arrays, without computing anything.

    Example: fgmix plot redraw figures/flatness.npz
    """
    from fgmix.figures.arrays_file import load_arrays

    for file in files:
        finish(load_arrays(file), file.parent, file.stem)


def finish(arrays: Any, out: Path, name: str) -> None:
    """Draw and save a figure; print its files and its claims."""
    from fgmix.figures.draw import draw, save_figure
    from fgmix.figures.kinds import describe, state_claims

    drawn = draw(describe(arrays))
    if _replaces(out / f"{name}.npz", arrays):
        print(f"note: replaced {out / name}, which showed something else", file=sys.stderr)
    print("\n".join([*map(str, save_figure(drawn, out / name, arrays)), *state_claims(arrays)]))


def finish_rows(rows: list[Any], out: Path, name: str) -> None:
    from fgmix.figures.arrays import stack_rows

    finish(stack_rows(rows), out, name)


def _replaces(file: Path, arrays: Any) -> bool:
    """Whether a file exists and contains other arrays."""
    from fgmix.figures.arrays_file import have_equal_arrays, load_arrays

    try:
        return file.exists() and not have_equal_arrays(load_arrays(file), arrays)
    except UserError:  # damaged, or of another version
        return True


def slug(text: str) -> str:
    """A title as part of a file name."""
    return "-".join("".join(c if c.isalnum() else " " for c in text).split())
