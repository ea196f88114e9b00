"""Which runs `fgmix sweep` and `fgmix plan` are about: a preset, or datasets and algorithms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fgmix.cli.options import listed, pairs_of
from fgmix.errors import UserError, unknown
from fgmix.fields import check_fields, declare
from fgmix.records.schema import parse_options

if TYPE_CHECKING:
    from fgmix.sweeps.presets import Preset

Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="name=value of a setting, for all methods that have it", rich_help_panel="What to run"),
]
Grid = Annotated[
    list[str] | None,
    typer.Option(help="name=value,value,… of a setting; all combinations are run", rich_help_panel="What to run"),
]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with", help="name=value of an option of `fgmix train`, such as steps=100", rich_help_panel="What to run"
    ),
]
SWEPT = ("dataset", "algorithm", "trial_seed", "hparams_seed", "data_root")  # options of a run that the sweep sets
_GROUP = "What to run"


@dataclass(frozen=True)
class Wanted:
    """The flags of `sweep` and `plan` that select the runs; None and "" mean those of the preset, or the default."""

    preset: str = declare("", help="a table of the paper, such as paper-overall or paper-ablation", group=_GROUP)
    scale: str = declare(
        "",
        help="size of the preset: paper (default), small (an hour on 2 cores) or cpu (overnight; paper-ablation)",
        group=_GROUP,
    )
    datasets: str = declare("", help="comma-separated names or paths", group=_GROUP)
    algorithms: str = declare("", help="comma-separated names, or `all`", group=_GROUP)
    test_domains: str = declare("", help="comma-separated domains to hold out; all by default", group=_GROUP)
    pairs: bool | None = declare(None, help="also hold out pairs, for leave-one-domain-out selection", group=_GROUP)
    trials: int | None = declare(
        None, help="number of trials, each with its own splits; 3 by default", group=_GROUP, ge=1, le=1000
    )
    hparams: int | None = declare(
        None,
        help="hyper-parameter samples per trial; 1 is the defaults alone; 20 by default",
        group=_GROUP,
        ge=1,
        le=10_000,
    )
    space: Literal["domainbed", "paper"] | None = declare(None, help="search space; domainbed by default", group=_GROUP)
    data_root: str = declare("", help="folder that contains the datasets", group=_GROUP, envvar="FGMIX_DATA")

    def __post_init__(self) -> None:
        check_fields(self)


def wanted_sweeps(wanted: Wanted, set_: list[str], grid: list[str], with_: list[str]) -> Preset:
    """The preset, or a sweep over the given datasets and algorithms, with the other flags applied."""
    from fgmix.sweeps import presets

    base = _base(wanted)
    methods = {name for sweep in base.sweeps for name in sweep.algorithms}
    common = run_options(with_) | ({"data_root": wanted.data_root} if wanted.data_root else {})
    changes = {
        "test_domains": listed(wanted.test_domains) or None,
        "pairs": wanted.pairs,
        "trials": wanted.trials,
        "hparams": wanted.hparams,
        "space": wanted.space,
        "common": common or None,
        "settings": {name: _setting(methods, name, text) for name, text in pairs_of(set_).items()} or None,
        "grid": _grid(methods, grid) or None,
    }
    if twice := sorted(pairs_of(set_).keys() & pairs_of(grid, "--grid").keys()):
        raise UserError(f"Expected {twice[0]} in --set or in --grid. Found it in both. Remove one of them.")
    said = {name: value for name, value in changes.items() if value is not None}
    return presets.Preset(base.about, tuple(presets.apply_changes(sweep, said) for sweep in base.sweeps), base.bench)


def _base(wanted: Wanted) -> Preset:
    from fgmix.algorithms import names
    from fgmix.sweeps import presets
    from fgmix.sweeps.design import Sweep

    chosen = tuple(names()) if wanted.algorithms == "all" else listed(wanted.algorithms)
    if wanted.preset:
        if wanted.datasets or chosen:
            raise UserError("Expected --preset, or --datasets and --algorithms. Found both; a preset names its own.")
        return presets.get_preset(wanted.preset, wanted.scale or "paper")
    if not wanted.datasets or not chosen:
        missing = " and ".join(["--datasets"] * (not wanted.datasets) + ["--algorithms"] * (not chosen))
        raise UserError(f"Expected --datasets and --algorithms, or a --preset. Found no {missing}.")
    if wanted.scale:
        raise UserError(f"Expected --scale with a --preset, whose size it is. Found --scale {wanted.scale} alone.")
    return presets.Preset("", (Sweep(datasets=listed(wanted.datasets), algorithms=chosen),))


def run_options(texts: list[str]) -> dict[str, Any]:
    """Options of a run from texts "name=value"."""
    options = parse_options(pairs_of(texts, "--with"), omit=SWEPT)
    if options.get("backbone"):
        _check_backbone(options["backbone"])
    return options


def _check_backbone(name: str) -> None:
    """Raise an error for an unknown backbone, before every run fails; timm takes seconds to import."""
    from fgmix.networks import backbones
    from fgmix.networks.build import OWN_BACKBONES

    if name not in OWN_BACKBONES and name.split(".")[0] not in backbones():
        raise unknown("backbone", name, backbones(f"*{name[:6]}*"))


def _grid(methods: set[str], texts: list[str]) -> dict[str, tuple[Any, ...]]:
    """A grid from texts "name=value,value,…"."""
    values = {name: [value.strip() for value in text.split(",")] for name, text in pairs_of(texts, "--grid").items()}
    for name, found in values.items():
        if found == [""]:
            raise UserError(f"Expected --grid {name}=value,value,… Found no value. Name at least one.")
        if "" in found:
            raise UserError(f"Expected --grid {name}=value,value,… Found an empty value. Remove a comma, or fill it.")
    return {name: tuple(_setting(methods, name, value) for value in found) for name, found in values.items()}


def _setting(methods: set[str], name: str, text: str) -> Any:
    """A setting, parsed as the first method that has it declares; an error if none has it."""
    from fgmix.algorithms import get

    configs = [get(method).Config for method in sorted(methods)]
    having = [config for config in configs if name in config.names()]
    if not having:
        raise unknown("setting of these algorithms", name, {known for config in configs for known in config.names()})
    return having[0].parse({name: text})[name]
