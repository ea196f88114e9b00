"""fgmix data: look at a dataset before training on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Look at datasets.", no_args_is_help=True)


@app.callback()
def data() -> None:
    """A group, even while it has one command."""


@app.command()
def check(folder: Annotated[Path, typer.Argument(help="laid out domain/class/image")]) -> None:
    """Count a folder's images by domain and class; find unreadable files, duplicates, missing classes."""
    from fgmix.data.checks import check_folder

    print("\n".join(check_folder(folder).lines()))
