"""fgmix plan: time and disk space of a sweep, before it starts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fgmix.cli.options import Flags, flags, split_names
from fgmix.cli.sweep_options import RUN_FLAGS, SWEEP_FILE, SWEEP_FLAGS, Launching, SweepOptions, design_sweeps
from fgmix.errors import UserError, bad_value
from fgmix.terminal import print_lines, print_notes, print_phase

if TYPE_CHECKING:
    from fgmix.sweeps.plan import CostedRun

# Without effect on the estimate.
IGNORED = ("out", "log", "records", "launcher", "runs_per_gpu", "address", "cpus", "gpus", "slurm")


@flags(SWEEP_FILE, what=replace(SWEEP_FLAGS, ignored=IGNORED), run=RUN_FLAGS, how=Flags(Launching, ignored=IGNORED))
def plan(
    what: dict[str, Any],
    run: dict[str, Any],
    how: dict[str, Any],
    budget: Annotated[str | None, typer.Option(help="also show what fits into this time, such as 8h")] = None,
    out: Annotated[Path | None, typer.Option(help="count only what is missing in this folder")] = None,
    spread_from: Annotated[
        Path | None,
        typer.Option(metavar="RECORDS", help="folder of runs to measure the spread of differences in", hidden=True),
    ] = None,
    spread: Annotated[
        float | None, typer.Option(metavar="POINTS", help="guess of that spread; 2 points unless given", hidden=True)
    ] = None,
) -> None:
    """Estimate the number of runs, the time and the space of a sweep, and which differences it can find.

    It is measured by a calibration of a few steps. FILE is a file for `fgmix sweep`.

    Example: fgmix plan --datasets digits --algorithms erm,fgmix --workers 2
    """
    print_phase("measuring the time of a step")
    from fgmix.progress import parse_duration
    from fgmix.records.store import RunFolder
    from fgmix.sweeps.launchers.local import assign_devices
    from fgmix.sweeps.plan import estimate_costs, summarise

    seconds = parse_duration(budget) if budget else None
    known = _find_spread(spread, spread_from)
    sweeps = design_sweeps(SweepOptions(**what), run)
    if out is not None and os.path.lexists(out) and not os.path.isdir(out):
        raise UserError(f"Expected the folder of a sweep at {out}. Found a file. Choose another --out.")
    launching = Launching(**how, slurm={})
    devices = split_names([launching.device]) or ("auto",)
    workers = len(assign_devices(devices, launching.workers))
    costs = estimate_costs(sweeps, device=devices[0], workers=workers)
    missing = [each for each in costs.runs if out is None or not RunFolder(out / each.run.name).is_settled]
    print_notes(*dict.fromkeys(note for each in missing for note in each.run.notes))
    print_lines(summarise(missing, workers, seconds, costs.impossible))
    print_lines(_describe_power(costs.runs, *known))


def _find_spread(spread: float | None, records: Path | None) -> tuple[float, str]:
    """Find by how much differences of two methods vary between pairs, in points, and say where it is from."""
    from fgmix.results.power import GUESS
    from fgmix.results.read import read_runs
    from fgmix.results.selection import select
    from fgmix.results.statistics import measure_spread

    if records is None:
        value = GUESS if spread is None else spread
        if not 0 < value <= 100:
            raise bad_value("spread", "percentage points above 0 and at most 100", value)
        return value, "a guess; measure it with --spread-from RECORDS"
    if spread is not None:
        raise UserError("Expected --spread or --spread-from. Found both. Leave one out.")
    return measure_spread(select(read_runs(records))), f"the median of the methods in {records}"


def _describe_power(runs: Sequence[CostedRun], spread: float, source: str) -> list[str]:
    """Say for each dataset which differences from ERM its runs can find; nothing without a second row or pair."""
    from fgmix.records.rows import spec_row
    from fgmix.results.power import describe_power

    lines = []
    for dataset in dict.fromkeys(each.dataset for each in runs):
        specs = [each.run.spec for each in runs if each.dataset == dataset and len(each.run.spec.test_domains) == 1]
        trials, domains = ({getattr(spec, name) for spec in specs} for name in ("trial_seed", "test_domains"))
        rows = len({spec_row(spec) for spec in specs}) - 1
        if rows > 0:
            lines.append(f"{dataset}: {describe_power(len(trials), len(domains), rows, spread)}.")
    about = (
        f"Detected with 80 % power if the differences of two methods vary by {spread:.1f} points between trials and "
    )
    return [*lines, f"{about}test domains ({source})."] if lines else []
