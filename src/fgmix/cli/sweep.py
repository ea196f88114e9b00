"""Commands of many runs: sweep, and plan, which says how long it takes; status; and demo, a sweep of three methods."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fgmix.cli.help import REQUIRED
from fgmix.cli.options import LOG, AcceptCode, Checked, Flags, Quiet, declare, flags, forbid, require, split_names
from fgmix.errors import UserError, bad_value
from fgmix.records.schema import RunSpec
from fgmix.terminal import print_error, print_lines, print_notes, print_phase

if TYPE_CHECKING:
    from fgmix.sweeps.design import Sweep
    from fgmix.sweeps.plan import CostedRun

_GROUP = "What to run"
SWEEP_FILE = "sweep.toml with these options; flags override it"
INCOMPLETE = 1  # exit code of a sweep with runs that failed or are waiting


@dataclass(frozen=True, kw_only=True)
class SweepOptions(Checked):
    """What to run, and the folder of the runs; None, "" and () mean what the preset says, or the default."""

    datasets: tuple[str, ...] = declare((), help="comma-separated names or paths", group=REQUIRED)
    algorithms: tuple[str, ...] = declare((), help="comma-separated names, or `all`", group=REQUIRED)
    out: str = declare("", help="folder of the runs", group=REQUIRED)
    test_domains: tuple[str, ...] = declare(
        (), help="comma-separated domains to hold out; all by default", group=_GROUP
    )
    settings: Mapping[str, Any] = declare(help="setting, for all methods that have it", group=_GROUP, flag="--set")
    grid: Mapping[str, Any] = declare(help="values of a setting; all combinations are run", group=_GROUP)
    preset: str = declare(
        "", help="quick (typefaces, in minutes), or a table of the paper, such as paper-ablation", group=_GROUP
    )
    scale: str = declare(
        "", help="size of the paper's presets: paper (default), small (an hour on 2 cores) or cpu", group=_GROUP
    )
    pairs: bool | None = declare(None, help="also hold out pairs, for leave-one-domain-out selection", group=_GROUP)
    single_source: bool | None = declare(None, help="train on each domain alone and test on all others", group=_GROUP)
    trials: int | None = declare(
        None, help="number of trials, each with its own splits; 3 by default", group=_GROUP, ge=1, le=1000
    )
    hparams: int | None = declare(
        None, help="samples per trial (1: only the defaults); 20 by default", group=_GROUP, ge=1, le=10_000
    )
    space: Literal["domainbed", "paper"] | None = declare(None, help="search space; domainbed by default", group=_GROUP)
    data_root: str = declare("", help="folder of the datasets", group=_GROUP, envvar="FGMIX_DATA")
    log: tuple[str, ...] = declare((), help=LOG)
    records: tuple[str, ...] = declare((), help="file of `report --pack`, whose runs are not trained again; repeatable")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("datasets", "algorithms", "test_domains"):
            object.__setattr__(self, name, split_names(getattr(self, name)))


@dataclass(frozen=True, kw_only=True)
class Launching(Checked):
    """The launcher and its resources."""

    launcher: Literal["local", "ray", "slurm"] = declare("local", help="where runs are executed", group="Launcher")
    workers: int | None = declare(
        None, help="processes (local; one per GPU by default) or jobs (slurm)", group="Launcher", ge=1, le=1024
    )
    runs_per_gpu: int = declare(1, help="runs that share a GPU (local, slurm)", group="Launcher", ge=1, le=64)
    device: str = declare("auto", help="auto, cpu, or devices to share, such as cuda:0,cuda:1", group="Launcher")
    address: str = declare(
        "", help="address of a Ray cluster; without one, a cluster is started here", group="Launcher"
    )
    cpus: int = declare(1, help="cores per run (ray, slurm)", group="Launcher", ge=1, le=1024)
    gpus: float | None = declare(
        None, help="GPUs per run (ray; fractions share one) or per job (slurm)", group="Launcher", ge=0, le=1024
    )
    slurm: Mapping[str, Any] = declare(help="option of Slurm, such as partition=gpu", group="Launcher")


# Options of a run that the sweep sets itself.
SWEPT = ("dataset", "algorithm", "trial_seed", "hparams_seed", "data_root")
SWEEP_FLAGS = Flags(
    SweepOptions,
    everyday=(
        *("datasets", "algorithms", "out", "test_domains", "settings", "grid"),
        *("preset", "scale", "trials", "hparams", "data_root", "log"),
    ),
)
RUN_FLAGS = Flags(
    RunSpec,
    omit=SWEPT,
    everyday=("steps", "batch_size", "backbone", "pretrained", "frozen", "protocol"),
    section="Every run",
    defaults=False,
)
LAUNCH_FLAGS = Flags(Launching, everyday=("launcher", "workers", "device"))
# Options without effect for a launcher: an error instead of ignoring them silently.
FOREIGN: dict[str, tuple[str, ...]] = {
    "local": ("address", "cpus", "gpus", "slurm"),
    "ray": ("workers", "runs_per_gpu", "slurm"),
    "slurm": ("address",),
}
# Without effect on the estimate.
IGNORED = ("out", "log", "records", "launcher", "runs_per_gpu", "address", "cpus", "gpus", "slurm")


@flags(SWEEP_FILE, what=SWEEP_FLAGS, run=RUN_FLAGS, how=LAUNCH_FLAGS)
def sweep(
    context: typer.Context,
    what: dict[str, Any],
    run: dict[str, Any],
    how: dict[str, Any],
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="rerun runs that failed before")] = False,
    quiet: Quiet = False,
    accept_code: AcceptCode = False,
) -> None:
    """Train many runs, or complete those that are missing.

    The runs are datasets × algorithms × test domains × hyper-parameter samples × trials. Rerun to resume.

    FILE has a line `name = value` for each option (`datasets = ["PACS"]`, `batch_size = 32`); settings of methods stand
    below `[settings]` and `[grid]`. Paths in it are relative to the current folder.

    Example: fgmix sweep --datasets digits --algorithms erm,fgmix --hparams 1 --out sweep
    """
    print_phase("planning the runs", quiet=quiet)
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
    result = run_sweeps(sweeps, out, launch, log=options.log, progress=not quiet, **how_to)
    print(f"{len(result.done)} runs done in {out}. Tables: fgmix report {out}")
    for name in result.failed:
        print_lines([f"failed: {name} (see {out / name / 'error.json'}; --retry-failed runs it again)"])
    if result.waiting:
        print_error(f"{len(result.waiting)} runs are waiting. {result.stopped_by}")
    if result.failed or result.waiting:
        raise typer.Exit(INCOMPLETE)


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
    """Estimate runs, time and space of a sweep, and what it can find.

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
    from fgmix.results.intervals import GUESS
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
    from fgmix.results.intervals import describe_power

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


def design_sweeps(options: SweepOptions, common: Mapping[str, Any]) -> tuple[Sweep, ...]:
    """Design the preset's sweeps, or one over the datasets and algorithms; `common` are options of every run."""
    from fgmix.networks.names import is_clip
    from fgmix.sweeps.presets import change_sweeps

    names = ("test_domains", "pairs", "single_source", "trials", "hparams", "space")
    given = {name: getattr(options, name) for name in names}
    return change_sweeps(
        _choose_sweeps(options, with_texts=is_clip(common.get("backbone") or "")),
        common={**common, **({"data_root": options.data_root} if options.data_root else {})},
        settings=options.settings,
        grid={name: text.split(",") if isinstance(text, str) else text for name, text in options.grid.items()},
        **{name: value for name, value in given.items() if value not in (None, ())},
    )


def _choose_sweeps(options: SweepOptions, *, with_texts: bool) -> tuple[Sweep, ...]:
    """Return the preset's sweeps, or one over the datasets and algorithms; "all" are those that the backbone allows."""
    from fgmix.algorithms import get, names
    from fgmix.sweeps.design import Sweep
    from fgmix.sweeps.presets import get_preset

    algorithms = options.algorithms
    if algorithms == ("all",):
        algorithms = tuple(
            name
            for name in names()
            if (not options.single_source or get(name).min_domains == 1) and (with_texts or not get(name).head)
        )
    if options.preset:
        if options.datasets:
            raise UserError("Expected --preset or --datasets. Found both; a preset names its own datasets.")
        return get_preset(options.preset, options.scale, algorithms).sweeps
    if not options.datasets or not algorithms:
        missing = " and ".join(["--datasets"] * (not options.datasets) + ["--algorithms"] * (not algorithms))
        raise UserError(f"Expected --datasets and --algorithms, or a --preset. Found no {missing}.")
    if options.scale:
        raise UserError(f"Expected --scale with a --preset, whose size it is. Found --scale {options.scale} alone.")
    return (Sweep(datasets=options.datasets, algorithms=algorithms),)


def forbid_foreign(context: typer.Context, how: Launching) -> None:
    """Raise an error for flags that have no effect with this launcher."""
    forbid(context, FOREIGN[how.launcher], f"with --launcher {how.launcher}")
    if how.launcher == "local" and how.workers is not None:
        forbid(context, ("runs_per_gpu",), "with --workers, which are shared out between the GPUs")
