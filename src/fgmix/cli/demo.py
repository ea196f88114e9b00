"""fgmix demo: the main job on the embedded data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(help="folder for the runs and the report")] = Path("demo"),
    steps: Annotated[int | None, typer.Option(help="optimisation steps of each run")] = None,
) -> None:
    """Hold out every domain of `digits` in turn, compare the methods and write a report.

    Example: fgmix demo --out demo
    """
    from fgmix.demo import run_demo

    run_demo(out, steps=steps)
