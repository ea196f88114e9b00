"""fgmix demo: hold out every domain of the embedded data, and report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fgmix.terminal import print_phase


def demo(
    out: Annotated[
        Path | None, typer.Option(help="folder for the runs and the report; demo, or demo-fast with --fast")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="optimisation steps of each run")] = None,
    fast: Annotated[
        bool, typer.Option("--fast", help="a quick test of a few minutes, with too few steps to compare methods")
    ] = False,
) -> None:
    """Compare three methods on `digits`, every domain held out in turn.

    Prints a table and writes a report in HTML.

    Example: fgmix demo --out demo
    """
    print_phase("planning the runs")
    from fgmix.demo import run_demo

    run_demo(out or Path("demo-fast" if fast else "demo"), steps=steps, fast=fast)
