"""fgmix status: progress of a sweep."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from fgmix.cli.options import forbid
from fgmix.terminal import print_lines


def status(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="folder of a sweep or of a run")],
    watch: Annotated[bool, typer.Option("--watch", help="update until nothing is left to run")] = False,
    every: Annotated[float, typer.Option(help="seconds between updates of --watch", min=0, max=86400)] = 5.0,
) -> None:
    """Count the runs of a sweep by state, and estimate the time left.

    A run is done, running, failed or waiting. The folder of a run of `fgmix train` is accepted, too.

    Example: fgmix status sweep --watch
    """
    from rich.console import Console

    from fgmix.records.status import read_status

    if not watch:
        forbid(context, ("every",), "without --watch")
    state = read_status(out)
    while True:
        if watch:
            Console().clear()  # does nothing without a terminal
        print_lines(state.lines())
        if not watch or not state.left:
            break
        try:
            time.sleep(every)
        except KeyboardInterrupt:  # how a user stops watching
            break
        state = read_status(out, state)
