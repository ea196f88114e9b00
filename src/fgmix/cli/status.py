"""fgmix status: progress of a sweep."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from fgmix.cli.options import refuse


def status(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(help="folder of a sweep or of a run")],
    watch: Annotated[bool, typer.Option("--watch", help="update until nothing is left to run")] = False,
    every: Annotated[float, typer.Option(help="seconds between updates of --watch", min=0, max=86400)] = 5.0,
) -> None:
    """Count the runs of a sweep that are done, running, failed and waiting, and estimate the time left.

    A run of `fgmix train` is accepted, too.

    Example: fgmix status sweep --watch
    """
    from rich.console import Console

    from fgmix.records.status import read_status

    if not watch:
        refuse(context, ("every",), "without --watch")
    found = read_status(out)
    while True:
        if watch:
            Console().clear()  # does nothing without a terminal
        print("\n".join(found.lines()), flush=True)
        if not watch or not found.left:
            break
        time.sleep(every)
        found = read_status(out, found)
