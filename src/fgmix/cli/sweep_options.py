"""Options of `fgmix sweep` and `fgmix plan`: which runs, and where they are executed; from flags and a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fgmix.cli.help import REQUIRED
from fgmix.cli.options import (
    LOG,
    Flags,
    check_options,
    check_run_options,
    check_setting,
    declare,
    forbid,
    split_names,
)
from fgmix.errors import UserError, bad_value, unknown
from fgmix.records.schema import RunSpec

if TYPE_CHECKING:
    from fgmix.sweeps.execute import Launch
    from fgmix.sweeps.presets import Preset

_GROUP = "What to run"
SweepFile = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", show_default=False, help="sweep.toml with these options; flags override it"),
]


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """What to run; None, "" and () mean what the preset says, or the default."""

    datasets: tuple[str, ...] = declare((), help="comma-separated names or paths", group=REQUIRED)
    algorithms: tuple[str, ...] = declare((), help="comma-separated names, or `all`", group=REQUIRED)
    test_domains: tuple[str, ...] = declare(
        (), help="comma-separated domains to hold out; all by default", group=_GROUP
    )
    settings: Mapping[str, Any] = declare(help="setting, for all methods that have it", group=_GROUP, flag="--set")
    grid: Mapping[str, Any] = declare(help="values of a setting; all combinations are run", group=_GROUP)
    preset: str = declare(
        "", help="instead of datasets and algorithms: a table of the paper, such as paper-ablation", group=_GROUP
    )
    scale: str = declare(
        "", help="size of the preset: paper (default), small (an hour on 2 cores) or cpu", group=_GROUP
    )
    pairs: bool | None = declare(None, help="also hold out pairs, for leave-one-domain-out selection", group=_GROUP)
    trials: int | None = declare(
        None, help="number of trials, each with its own splits; 3 by default", group=_GROUP, ge=1, le=1000
    )
    hparams: int | None = declare(
        None, help="hyper-parameter samples; 1 is the defaults alone; 20 by default", group=_GROUP, ge=1, le=10_000
    )
    space: Literal["domainbed", "paper"] | None = declare(None, help="search space; domainbed by default", group=_GROUP)
    data_root: str = declare("", help="folder of the datasets", group=_GROUP, envvar="FGMIX_DATA")

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("datasets", "algorithms", "test_domains"):
            object.__setattr__(self, name, split_names(getattr(self, name)))


@dataclass(frozen=True, kw_only=True)
class Launching:
    """The folder of the runs, the launcher that executes them, and its resources."""

    out: str = declare("", help="folder of the runs", group=REQUIRED)
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
    log: tuple[str, ...] = declare((), help=LOG)
    records: tuple[str, ...] = declare((), help="finished runs, packed by `fgmix report --pack`, not to train again")

    def __post_init__(self) -> None:
        check_options(self)


# Options of a run that the sweep sets itself.
SWEPT = ("dataset", "algorithm", "trial_seed", "hparams_seed", "data_root")
SWEEP_FLAGS = Flags(
    SweepOptions,
    everyday=(
        *("datasets", "algorithms", "test_domains", "settings", "grid"),
        *("preset", "scale", "trials", "hparams", "data_root"),
    ),
)
RUN_FLAGS = Flags(
    RunSpec,
    omit=SWEPT,
    everyday=("steps", "batch_size", "backbone", "image_size", "frozen", "protocol", "keep"),
    section="Every run",
    defaults=False,
)
LAUNCH_FLAGS = Flags(Launching, everyday=("out", "launcher", "workers", "device", "gpus", "log"))
# Options without effect for a launcher: an error instead of ignoring them silently.
FOREIGN: dict[str, tuple[str, ...]] = {
    "local": ("address", "cpus", "gpus", "slurm"),
    "ray": ("workers", "runs_per_gpu", "slurm"),
    "slurm": ("address",),
}


def design_sweeps(options: SweepOptions, common: Mapping[str, Any]) -> Preset:
    """Design the preset's sweeps, or one over the given datasets and algorithms, with the other options applied.

    Args:
        options: what to run.
        common: options of every run.
    """
    from fgmix.sweeps import presets

    base = _choose_base(options)
    algorithms = {name for sweep in base.sweeps for name in sweep.algorithms}
    if twice := sorted(options.settings.keys() & options.grid.keys()):
        raise UserError(f"Expected {twice[0]} in --set or in --grid. Found it in both. Remove one of them.")
    common = check_run_options(common) | ({"data_root": options.data_root} if options.data_root else {})
    if common.get("backbone"):
        _check_backbone(common["backbone"])
    changes = {
        "test_domains": options.test_domains or None,
        "pairs": options.pairs,
        "trials": options.trials,
        "hparams": options.hparams,
        "space": options.space,
        "common": common or None,
        "settings": {name: _check_setting(algorithms, name, value) for name, value in options.settings.items()} or None,
        "grid": {name: _check_values(algorithms, name, values) for name, values in options.grid.items()} or None,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    return presets.Preset(base.about, tuple(presets.apply_changes(sweep, given) for sweep in base.sweeps))


def _choose_base(options: SweepOptions) -> Preset:
    """Return the preset, or a sweep over the datasets and algorithms."""
    from fgmix.algorithms import names
    from fgmix.sweeps import presets
    from fgmix.sweeps.design import Sweep

    algorithms = tuple(names()) if options.algorithms == ("all",) else options.algorithms
    if options.preset:
        if options.datasets or algorithms:
            raise UserError("Expected --preset, or --datasets and --algorithms. Found both; a preset names its own.")
        return presets.get_preset(options.preset, options.scale or "paper")
    if not options.datasets or not algorithms:
        missing = " and ".join(["--datasets"] * (not options.datasets) + ["--algorithms"] * (not algorithms))
        raise UserError(f"Expected --datasets and --algorithms, or a --preset. Found no {missing}.")
    if options.scale:
        raise UserError(f"Expected --scale with a --preset, whose size it is. Found --scale {options.scale} alone.")
    return presets.Preset("", (Sweep(datasets=options.datasets, algorithms=algorithms),))


def _check_backbone(name: str) -> None:
    """Raise an error for an unknown backbone, before every run fails; timm takes seconds to import."""
    from fgmix.networks import backbones
    from fgmix.networks.build import OWN_BACKBONES

    if name not in OWN_BACKBONES and name.split(".")[0] not in backbones():
        raise unknown("backbone", name, backbones(f"*{name[:6]}*"))


def _check_values(algorithms: set[str], name: str, values: Any) -> tuple[Any, ...]:
    """Check the values of a grid's setting."""
    values = values.split(",") if isinstance(values, str) else values if isinstance(values, list) else [values]
    texts = [value.strip() if isinstance(value, str) else value for value in values]
    if not texts or texts == [""]:
        raise UserError(f"Expected --grid {name}=value,value,… Found no value. Name at least one.")
    if "" in texts:
        raise UserError(f"Expected --grid {name}=value,value,… Found an empty value. Remove a comma, or fill it.")
    return tuple(_check_setting(algorithms, name, value) for value in texts)


def _check_setting(algorithms: set[str], name: str, value: Any) -> Any:
    """Check a setting, and parse a text, as the first method that has it declares; raise an error if none has it."""
    from fgmix.algorithms import get

    configs = [get(algorithm).Config for algorithm in sorted(algorithms)]
    having = [config for config in configs if name in config.names()]
    if not having:
        raise unknown("setting of these algorithms", name, {known for config in configs for known in config.names()})
    return check_setting(having[0], name, value)


def make_launch(how: Launching) -> Launch:
    """Return the launcher's function with the user's options."""
    from fgmix.sweeps import launchers

    _check_gpus(how)
    if how.launcher == "local":
        from fgmix.sweeps.launchers.local import assign_devices, check_devices, run_local

        devices = split_names([how.device])
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
    return partial(run_slurm, jobs=how.workers or 1, device=how.device, options=how.slurm, **resources)


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
