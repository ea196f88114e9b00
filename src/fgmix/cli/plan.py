"""fgmix plan: time and disk space of a sweep, before it starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from fgmix.cli.files import SweepFile
from fgmix.cli.launching import Launching
from fgmix.cli.options import Flags, flags, option_names, override, split_names
from fgmix.cli.sweep_options import (
    RUN_FLAGS,
    SWEEP_FLAGS,
    Algorithms,
    Datasets,
    Grid,
    Set,
    TestDomains,
    design_sweeps,
    merge_options,
    read_sweep,
)
from fgmix.errors import UserError

OF_LAUNCHERS = ("launcher", "runs_per_gpu", "address", "cpus", "gpus")  # without effect on the estimate


@flags(sweep_options=SWEEP_FLAGS, options=RUN_FLAGS, launching=Flags(Launching, omit=OF_LAUNCHERS))
def plan(
    context: typer.Context,
    sweep_options: dict[str, Any],
    options: dict[str, Any],
    launching: dict[str, Any],
    file: SweepFile = None,
    datasets: Datasets = None,
    algorithms: Algorithms = None,
    test_domains: TestDomains = None,
    set_: Set = None,
    grid: Grid = None,
    budget: Annotated[str | None, typer.Option(help="also show what fits into this time, such as 8h")] = None,
    out: Annotated[Path | None, typer.Option(help="count only what is missing in this folder")] = None,
) -> None:
    """Estimate the number of runs, the time and the space of a sweep.

    It is measured by a calibration of a few steps. FILE is a file for `fgmix sweep`.

    Example: fgmix plan --datasets digits --algorithms erm,fgmix --workers 2
    """
    from fgmix.progress import parse_duration
    from fgmix.records.plans import is_settled
    from fgmix.sweeps.launchers.local import assign_devices
    from fgmix.sweeps.plan import estimate_costs, summarise

    seconds = parse_duration(budget) if budget else None
    values = read_sweep(file, (*option_names(Launching), "slurm", "out", "log", "records"))
    lists = {"datasets": datasets, "algorithms": algorithms, "test_domains": test_domains}
    what = merge_options(context, values, sweep_options, options, lists, set_, grid)
    chosen = design_sweeps(what)
    if out is not None and os.path.lexists(out) and not os.path.isdir(out):
        raise UserError(f"Expected the folder of a sweep at {out}. Found a file. Choose another --out.")
    how = Launching(
        **override(context, {name: values[name] for name in ("device", "workers") if name in values}, launching)
    )
    devices = split_names(how.device) or ("auto",)
    workers = len(assign_devices(devices, how.workers))
    costs = estimate_costs(chosen.sweeps, device=devices[0], workers=workers)
    missing = [each for each in costs.runs if out is None or not is_settled(out / each.run.name)]
    print("\n".join(summarise(missing, workers, seconds, costs.impossible)))
