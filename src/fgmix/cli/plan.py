"""fgmix plan: time and disk space of a sweep, before it starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from fgmix.cli.options import Device, flags
from fgmix.cli.wanted import Grid, Set, Wanted, With, wanted_sweeps
from fgmix.errors import UserError


@flags(Wanted, "wanted")
def plan(
    wanted: dict[str, Any],
    set_: Set = None,
    grid: Grid = None,
    with_: With = None,
    device: Device = "auto",
    workers: Annotated[int | None, typer.Option(help="processes; one per GPU by default", min=1, max=1024)] = None,
    budget: Annotated[str | None, typer.Option(help="also show what fits into this time, such as 8h")] = None,
    out: Annotated[Path | None, typer.Option(help="count only what is missing in this folder")] = None,
) -> None:
    """Print the number of runs, the time and the disk space of a sweep, from a calibration of a few steps.

    Example: fgmix plan --datasets digits --algorithms erm,fgmix --workers 2
    """
    from fgmix.durations import parse_duration
    from fgmix.records.plans import is_settled
    from fgmix.sweeps.launchers.local import assign_devices
    from fgmix.sweeps.plan import estimate_costs, summarise

    seconds = parse_duration(budget) if budget else None
    chosen = wanted_sweeps(Wanted(**wanted), set_ or [], grid or [], with_ or [])
    if chosen.bench:
        methods, rounds = len(chosen.bench["algorithms"]), chosen.bench["rounds"]
        print(f"{wanted['preset']} has no runs: it measures a step of {methods} methods, {rounds} times each.")
    if not chosen.sweeps:
        return
    if out is not None and os.path.lexists(out) and not os.path.isdir(out):
        raise UserError(f"Expected the folder of a sweep at {out}. Found a file. Choose another --out.")
    workers = len(assign_devices([device], workers))
    costs = estimate_costs(chosen.sweeps, device=device, workers=workers)
    missing = [each for each in costs.runs if out is None or not is_settled(out / each.run.name)]
    print("\n".join(summarise(missing, workers, seconds, costs.impossible)))
