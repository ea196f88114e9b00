"""Where the runs of `fgmix sweep` are executed: on this machine, on Ray or on Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import typer

from fgmix.cli.options import Flags, check_options, declare, forbid, split_names
from fgmix.errors import UserError, bad_value

if TYPE_CHECKING:
    from fgmix.sweeps.execute import Launch


@dataclass(frozen=True)
class Launching:
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

    def __post_init__(self) -> None:
        check_options(self)


LAUNCH_FLAGS = Flags(Launching, everyday=("launcher", "workers", "device", "gpus"))
# Options without effect for a launcher: an error instead of ignoring them silently.
FOREIGN: dict[str, tuple[str, ...]] = {
    "local": ("address", "cpus", "gpus", "slurm"),
    "ray": ("workers", "runs_per_gpu", "slurm"),
    "slurm": ("address",),
}


def make_launch(how: Launching, slurm: Mapping[str, str]) -> Launch:
    """Return the launcher's function with the user's options.

    Args:
        how: the options of all launchers.
        slurm: options of Slurm by name.
    """
    from fgmix.sweeps import launchers

    _check_gpus(how)
    if how.launcher == "local":
        from fgmix.sweeps.launchers.local import assign_devices, check_devices, run_local

        devices = split_names(how.device)
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
    return partial(run_slurm, jobs=how.workers or 1, device=how.device, options=dict(slurm), **resources)


def forbid_foreign(context: typer.Context, how: Launching) -> None:
    """Raise an error for flags that have no effect with this launcher."""
    forbid(context, FOREIGN[how.launcher], f"with --launcher {how.launcher}")
    if how.launcher == "local" and how.workers is not None:
        forbid(context, ("runs_per_gpu",), "with --workers, which are shared out between the GPUs")


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
