"""Options of `fgmix sweep` and `fgmix plan`: which runs, and where they are executed; from flags and a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import typer

from fgmix.cli.help import REQUIRED
from fgmix.cli.options import LOG, Checked, Flags, declare, forbid, split_names
from fgmix.errors import UserError
from fgmix.records.schema import RunSpec

if TYPE_CHECKING:
    from fgmix.sweeps.design import Sweep

_GROUP = "What to run"
SWEEP_FILE = "sweep.toml with these options; flags override it"


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
        None, help="hyper-parameter samples; 1 is the defaults alone; 20 by default", group=_GROUP, ge=1, le=10_000
    )
    space: Literal["domainbed", "paper"] | None = declare(None, help="search space; domainbed by default", group=_GROUP)
    data_root: str = declare("", help="folder of the datasets", group=_GROUP, envvar="FGMIX_DATA")
    log: tuple[str, ...] = declare((), help=LOG)
    records: tuple[str, ...] = declare((), help="finished runs, packed by `fgmix report --pack`, not to train again")

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
