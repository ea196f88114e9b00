"""fgmix status: where a sweep stands."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer


def status(
    out: Annotated[Path, typer.Argument(help="the sweep's folder")],
    watch: Annotated[bool, typer.Option(help="look again every few seconds until nothing is left")] = False,
    every: Annotated[float, typer.Option(help="seconds between looks", min=0)] = 5.0,
) -> None:
    """Runs done, running, failed and waiting, the rate, and the time left."""
    from rich.console import Console

    from fgmix.sweeps.status import read_status

    found = read_status(out)
    while True:
        if watch:
            Console().clear()  # does nothing where there is no terminal: the looks follow each other
        print("\n".join(found.lines()), flush=True)
        if not watch or not found.left:
            break
        time.sleep(every)
        found = read_status(out, found)
