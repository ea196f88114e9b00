"""fgmix sweep: many runs on one machine, Ray or Slurm."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fgmix.cli.files import SweepFile, take_names, take_path, take_table
from fgmix.cli.help import REQUIRED
from fgmix.cli.launching import LAUNCH_FLAGS, Launching, forbid_foreign, make_launch
from fgmix.cli.options import Targets, flags, option_names, override, parse_pairs
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

INCOMPLETE = 1  # exit code of a sweep with runs that failed or are waiting


@flags(sweep_options=SWEEP_FLAGS, options=RUN_FLAGS, launching=LAUNCH_FLAGS)
def sweep(
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
    out: Annotated[Path | None, typer.Option(help="folder of the runs", rich_help_panel=REQUIRED)] = None,
    slurm: Annotated[
        list[str] | None,
        typer.Option(help="option of Slurm, such as partition=gpu", rich_help_panel="Launcher", hidden=True),
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="rerun runs that failed before")] = False,
    log: Targets = None,
    records: Annotated[
        list[Path] | None,
        typer.Option(help="finished runs, packed by `fgmix report --pack`, not to train again", hidden=True),
    ] = None,
) -> None:
    """Train many runs, or complete those that are missing.

    The runs are datasets × algorithms × test domains × hyper-parameter samples × trials. Rerun to resume.

    FILE has a line `name = value` for each option (`datasets = ["PACS"]`, `batch_size = 32`); settings of methods stand
    below `[settings]` and `[grid]`. Paths in it are relative to the current folder.

    Example: fgmix sweep --datasets digits --algorithms erm,fgmix --hparams 1 --out sweep
    """
    from fgmix.records.store import unpack
    from fgmix.sweeps.execute import run_sweeps

    values = read_sweep(file, (*option_names(Launching), "slurm", "out", "log", "records"))
    lists = {"datasets": datasets, "algorithms": algorithms, "test_domains": test_domains}
    what = merge_options(context, values, sweep_options, options, lists, set_, grid)
    in_file = {name: take_names(values, name) for name in ("log", "records")}
    slurm_options = {**take_table(values, "slurm"), **parse_pairs(slurm or [], "--slurm")}
    folder = take_path(values, "out")
    out = out or folder
    if out is None:
        raise UserError("Missing option '--out'. Pass it, or name a file that has it.")
    chosen = design_sweeps(what)
    how = Launching(**override(context, values, launching))
    forbid_foreign(context, how)
    launch = make_launch(how, slurm_options)
    finished = [record for packed in records or map(Path, in_file["records"]) for record in unpack(packed)]
    log = log or in_file["log"]
    result = run_sweeps(chosen.sweeps, out, launch, retry_failed=retry_failed, log=log, finished=finished)
    print(f"{len(result.done)} runs done in {out}. Tables: fgmix report {out}")
    for name in result.failed:
        print(f"failed: {name} (see {out / name / 'error.json'}; --retry-failed runs it again)")
    if result.waiting:
        print(f"fgmix: {len(result.waiting)} runs are waiting. {result.stopped_by}", file=sys.stderr)
    if result.failed or result.waiting:
        raise typer.Exit(INCOMPLETE)
