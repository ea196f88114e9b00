"""fgmix sweep: many runs on one machine, Ray or Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fgmix.cli.options import AcceptCode, flags, require
from fgmix.cli.sweep_options import (
    LAUNCH_FLAGS,
    RUN_FLAGS,
    SWEEP_FILE,
    SWEEP_FLAGS,
    Launching,
    SweepOptions,
    design_sweeps,
    forbid_foreign,
)
from fgmix.terminal import print_error, print_lines, print_phase

INCOMPLETE = 1  # exit code of a sweep with runs that failed or are waiting


@flags(SWEEP_FILE, what=SWEEP_FLAGS, run=RUN_FLAGS, how=LAUNCH_FLAGS)
def sweep(
    context: typer.Context,
    what: dict[str, Any],
    run: dict[str, Any],
    how: dict[str, Any],
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="rerun runs that failed before")] = False,
    accept_code: AcceptCode = False,
) -> None:
    """Train many runs, or complete those that are missing.

    The runs are datasets × algorithms × test domains × hyper-parameter samples × trials. Rerun to resume.

    FILE has a line `name = value` for each option (`datasets = ["PACS"]`, `batch_size = 32`); settings of methods stand
    below `[settings]` and `[grid]`. Paths in it are relative to the current folder.

    Example: fgmix sweep --datasets digits --algorithms erm,fgmix --hparams 1 --out sweep
    """
    print_phase("planning the runs")
    from fgmix.records.store import unpack
    from fgmix.sweeps.execute import run_sweeps
    from fgmix.sweeps.launchers import make_launch

    options, launching = SweepOptions(**what), Launching(**how)
    require(out=options.out)
    out = Path(options.out)
    sweeps = design_sweeps(options, run)
    forbid_foreign(context, launching)
    launch = make_launch(**vars(launching))
    finished = [record for packed in options.records for record in unpack(Path(packed))]
    how_to: dict[str, Any] = {"retry_failed": retry_failed, "finished": finished, "accept_code": accept_code}
    result = run_sweeps(sweeps, out, launch, log=options.log, **how_to)
    print(f"{len(result.done)} runs done in {out}. Tables: fgmix report {out}")
    for name in result.failed:
        print_lines([f"failed: {name} (see {out / name / 'error.json'}; --retry-failed runs it again)"])
    if result.waiting:
        print_error(f"{len(result.waiting)} runs are waiting. {result.stopped_by}")
    if result.failed or result.waiting:
        raise typer.Exit(INCOMPLETE)
