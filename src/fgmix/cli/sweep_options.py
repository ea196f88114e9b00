"""Which runs `fgmix sweep` and `fgmix plan` are about: a preset, or datasets and algorithms; from flags and a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fgmix.cli.files import read_toml, take_names, take_table
from fgmix.cli.help import REQUIRED
from fgmix.cli.options import (
    Flags,
    check_options,
    check_run_options,
    check_setting,
    declare,
    option_names,
    override,
    parse_pairs,
    split_names,
)
from fgmix.errors import UserError, unknown
from fgmix.records.schema import RunSpec

if TYPE_CHECKING:
    from fgmix.sweeps.presets import Preset

_GROUP = "What to run"
Datasets = Annotated[list[str] | None, typer.Option(help="comma-separated names or paths", rich_help_panel=REQUIRED)]
Algorithms = Annotated[list[str] | None, typer.Option(help="comma-separated names, or `all`", rich_help_panel=REQUIRED)]
TestDomains = Annotated[
    list[str] | None, typer.Option(help="comma-separated domains to hold out; all by default", rich_help_panel=_GROUP)
]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="setting, for all methods that have it", rich_help_panel="What to run")
]
Grid = Annotated[
    list[str] | None, typer.Option(help="values of a setting; all combinations are run", rich_help_panel=_GROUP)
]


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """What to run; None and "" mean what the preset says, or the default.

    Args:
        datasets: names or paths.
        algorithms: registered names, or `all`.
        test_domains: to hold out; all by default.
        settings: of all methods that have them; texts are parsed.
        grid: values of settings.
        common: options of every run.

    The other fields are declared below, each with its help.
    """

    datasets: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    test_domains: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, Any] = field(default_factory=dict)
    common: Mapping[str, Any] = field(default_factory=dict)
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


# Options of a run that the sweep sets itself.
SWEPT = ("dataset", "algorithm", "trial_seed", "hparams_seed", "data_root")
LISTS = ("datasets", "algorithms", "test_domains")
TABLES = ("settings", "grid")
SWEEP_FLAGS = Flags(SweepOptions, everyday=("preset", "scale", "trials", "hparams", "data_root"))
RUN_FLAGS = Flags(
    RunSpec,
    omit=SWEPT,
    everyday=("steps", "batch_size", "backbone", "image_size", "frozen", "protocol", "keep"),
    section="Every run",
    defaults=False,
)


def read_sweep(path: Path | None, more: Iterable[str]) -> dict[str, Any]:
    """Read a sweep file: its keys are the options of a sweep and of its runs, and `more`; None for no file."""
    runs = [name for name in option_names(RunSpec) if name not in SWEPT]
    return read_toml(path, [*LISTS, *TABLES, *option_names(SweepOptions), *runs, *more])


def merge_options(
    context: typer.Context,
    file: dict[str, Any],
    given: Mapping[str, Any],
    options: Mapping[str, Any],
    lists: Mapping[str, list[str] | None],
    set_: list[str] | None,
    grid: list[str] | None,
) -> SweepOptions:
    """Merge a sweep file with the flags; the flags of a table add to it.

    Args:
        context: of the command.
        file: values of the file; those of a sweep are removed.
        given: declared options of a sweep.
        options: options of runs.
        lists: datasets, algorithms and test domains.
        set_: texts of `--set`.
        grid: texts of `--grid`.
    """
    in_file = {name: take_names(file, name) for name in LISTS}
    names: dict[str, Any] = {name: split_names(lists[name] or in_file[name]) for name in LISTS}
    settings, combinations = (take_table(file, name) for name in TABLES)
    own = {name: file.pop(name) for name in option_names(SweepOptions) if name in file}
    common = {name: file.pop(name) for name in option_names(RunSpec) if name in file}
    return SweepOptions(
        **names,
        **override(context, own, given),
        settings={**settings, **parse_pairs(set_ or [])},
        grid={**combinations, **{name: text.split(",") for name, text in parse_pairs(grid or [], "--grid").items()}},
        common=override(context, common, options),
    )


def design_sweeps(options: SweepOptions) -> Preset:
    """Design the preset's sweeps, or one over the given datasets and algorithms, with the other options applied."""
    from fgmix.sweeps import presets

    base = _choose_base(options)
    algorithms = {name for sweep in base.sweeps for name in sweep.algorithms}
    if twice := sorted(options.settings.keys() & options.grid.keys()):
        raise UserError(f"Expected {twice[0]} in --set or in --grid. Found it in both. Remove one of them.")
    common = check_run_options(options.common) | ({"data_root": options.data_root} if options.data_root else {})
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
    values = values if isinstance(values, list) else [values]
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
