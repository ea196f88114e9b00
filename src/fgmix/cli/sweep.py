"""fgmix sweep: many runs on one machine, Ray or Slurm."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fgmix.cli.options import Targets, flags, listed, pairs_of, refuse
from fgmix.cli.wanted import Grid, Set, Wanted, With, wanted_sweeps
from fgmix.errors import UserError, bad_value
from fgmix.fields import check_fields, declare

if TYPE_CHECKING:
    from fgmix.sweeps.execute import Launch

INCOMPLETE = 1  # exit code of a sweep with runs that failed or are waiting


@dataclass(frozen=True)
class Launching:
    """Where the runs are executed."""

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

    def __post_init__(self) -> None:
        check_fields(self)


@flags(Launching, "launching")
@flags(Wanted, "wanted")
def sweep(
    context: typer.Context,
    wanted: dict[str, Any],
    launching: dict[str, Any],
    out: Annotated[Path, typer.Option(help="folder of the runs")],
    set_: Set = None,
    grid: Grid = None,
    with_: With = None,
    slurm: Annotated[
        list[str] | None,
        typer.Option(help="name=value for Slurm, such as partition=gpu; may be repeated", rich_help_panel="Launcher"),
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="rerun runs that failed before")] = False,
    log: Targets = None,
    records: Annotated[
        list[Path] | None,
        typer.Option(help="finished runs, as `fgmix report --pack` wrote them, not to train again; may be repeated"),
    ] = None,
) -> None:
    """Train datasets × algorithms × test domains × hyper-parameter samples × trials; rerun to complete what is missing.

    Example: fgmix sweep --datasets digits --algorithms erm,fgmix --hparams 1 --out sweep
    """
    from fgmix.records.packed import unpack
    from fgmix.sweeps.execute import run_sweeps

    how = Launching(**launching)
    refuse(context, _FOREIGN[how.launcher], f"with --launcher {how.launcher}")
    if how.launcher == "local" and how.workers is not None:
        refuse(context, ("runs_per_gpu",), "with --workers, which are shared out between the GPUs")
    chosen = wanted_sweeps(Wanted(**wanted), set_ or [], grid or [], with_ or [])
    if not chosen.sweeps:
        refuse(context, (*launching, *_OF_RUNS), f"with --preset {wanted['preset']}, which has no runs")
    launch = launch_of(how, slurm or []) if chosen.sweeps else None
    if chosen.bench:
        from fgmix.sweeps.step_times import measure_cost

        measure_cost(chosen.bench, out)
        print(f"Steps measured. Table: fgmix report {out}")
    if launch is None:
        return
    finished = tuple(record for file in records or () for record in unpack(file))
    result = run_sweeps(chosen.sweeps, out, launch, retry_failed=retry_failed, log=log or (), finished=finished)
    print(f"{len(result.done)} runs done in {out}. Tables: fgmix report {out}")
    for name in result.failed:
        print(f"failed: {name} (see {out / name / 'error.json'}; --retry-failed runs it again)")
    if result.waiting:
        print(f"fgmix: {len(result.waiting)} runs are waiting. {result.stopped_by}", file=sys.stderr)
    if result.failed or result.waiting:
        raise typer.Exit(INCOMPLETE)


def launch_of(how: Launching, slurm: list[str]) -> Launch:
    """The launcher's function with the user's options."""
    from fgmix.sweeps import launchers

    _check_gpus(how)
    if how.launcher == "local":
        from fgmix.sweeps.launchers.local import assign_devices, check_devices, run_local

        devices = listed(how.device)
        check_devices(devices)
        options: dict[str, Any] = {"workers": how.workers, "devices": devices, "runs_per_gpu": how.runs_per_gpu}
        assign_devices(**options)  # raises errors before the data are loaded
        return partial(run_local, **options)
    if how.launcher == "ray":
        launchers.require("ray", "ray")
        from fgmix.sweeps.launchers.ray import run_ray

        return partial(run_ray, address=how.address or None, cpus=how.cpus, gpus=how.gpus, device=how.device)
    launchers.require("submitit", "slurm")
    from fgmix.sweeps.launchers.slurm import run_slurm

    resources: dict[str, Any] = {"cpus": how.cpus, "gpus": int(how.gpus or 0), "runs_per_gpu": how.runs_per_gpu}
    jobs, options = how.workers or 1, pairs_of(slurm, "--slurm")
    return partial(run_slurm, jobs=jobs, device=how.device, options=options, **resources)


# Options without effect for a launcher, and those of runs: an error instead of ignoring them silently.
_FOREIGN: dict[str, tuple[str, ...]] = {
    "local": ("address", "cpus", "gpus", "slurm"),
    "ray": ("workers", "runs_per_gpu", "slurm"),
    "slurm": ("address",),
}
_OF_RUNS = (
    "test_domains",
    "pairs",
    "trials",
    "hparams",
    "space",
    "data_root",
    "set_",
    "grid",
    "with_",
    "slurm",
    "retry_failed",
    "log",
    "records",
)


def _check_gpus(how: Launching) -> None:
    """Raise an error for devices that the launcher does not support."""
    if how.launcher != "local" and how.device not in ("auto", "cpu"):
        raise UserError(
            f"Expected --device auto or cpu with --launcher {how.launcher}. Found {how.device!r}. It assigns GPUs "
            "itself: request them with --gpus."
        )
    if how.launcher == "slurm" and how.gpus is not None and how.gpus != int(how.gpus):
        raise bad_value("gpus", "a whole number for slurm", how.gpus, "Runs share a GPU with --runs-per-gpu.")
    if how.launcher == "slurm" and how.runs_per_gpu > 1 and not how.gpus:
        raise UserError(
            f"Expected --gpus with --runs-per-gpu {how.runs_per_gpu}. Found no --gpus. Add --gpus N, the GPUs of a job."
        )
