"""fgmix plan: time and disk space of a sweep, before it starts."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fgmix.cli.options import Flags, flags, split_names
from fgmix.cli.sweep_options import RUN_FLAGS, SWEEP_FILE, SWEEP_FLAGS, Launching, SweepOptions, design_sweeps
from fgmix.errors import UserError

# Without effect on the estimate.
IGNORED = ("out", "log", "records", "launcher", "runs_per_gpu", "address", "cpus", "gpus", "slurm")


@flags(SWEEP_FILE, what=replace(SWEEP_FLAGS, ignored=IGNORED), run=RUN_FLAGS, how=Flags(Launching, ignored=IGNORED))
def plan(
    what: dict[str, Any],
    run: dict[str, Any],
    how: dict[str, Any],
    budget: Annotated[str | None, typer.Option(help="also show what fits into this time, such as 8h")] = None,
    out: Annotated[Path | None, typer.Option(help="count only what is missing in this folder")] = None,
) -> None:
    """Estimate the number of runs, the time and the space of a sweep.

    It is measured by a calibration of a few steps. FILE is a file for `fgmix sweep`.

    Example: fgmix plan --datasets digits --algorithms erm,fgmix --workers 2
    """
    from fgmix.progress import parse_duration
    from fgmix.records.store import RunFolder
    from fgmix.sweeps.launchers.local import assign_devices
    from fgmix.sweeps.plan import estimate_costs, summarise

    seconds = parse_duration(budget) if budget else None
    sweeps = design_sweeps(SweepOptions(**what), run)
    if out is not None and os.path.lexists(out) and not os.path.isdir(out):
        raise UserError(f"Expected the folder of a sweep at {out}. Found a file. Choose another --out.")
    launching = Launching(**how, slurm={})
    devices = split_names([launching.device]) or ("auto",)
    workers = len(assign_devices(devices, launching.workers))
    costs = estimate_costs(sweeps, device=devices[0], workers=workers)
    missing = [each for each in costs.runs if out is None or not RunFolder(out / each.run.name).is_settled]
    print("\n".join(summarise(missing, workers, seconds, costs.impossible)))
