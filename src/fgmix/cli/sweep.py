"""fgmix sweep and plan: many runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fgmix.cli.options import pairs_of
from fgmix.errors import UserError, bad_value, unknown

if TYPE_CHECKING:
    from fgmix.sweeps.presets import Preset
    from fgmix.sweeps.running import Launch

Preset_ = Annotated[str | None, typer.Option("--preset", help="a table of the paper: paper-overall, -ablation, …")]
Scale = Annotated[str | None, typer.Option(help="of the preset: paper (default), or small for an hour on two cores")]
Datasets = Annotated[str | None, typer.Option(help="names or paths, with commas between")]
Algorithms = Annotated[str | None, typer.Option(help="names, with commas between; `all` for every registered one")]
TestDomains = Annotated[str | None, typer.Option(help="domains to hold out, with commas between; all by default")]
Pairs = Annotated[bool | None, typer.Option(help="also hold out pairs, for leave-one-domain-out selection")]
Trials = Annotated[int | None, typer.Option(help="trials, each with its own splits; 3, or the preset's")]
HParams = Annotated[int | None, typer.Option(help="draws of hyper-parameters; 1 is the defaults alone; 20")]
Space = Annotated[str | None, typer.Option(help="search space: domainbed (default) or paper")]
Set = Annotated[list[str] | None, typer.Option("--set", help="name=value of a setting that all methods having it take")]
Grid = Annotated[list[str] | None, typer.Option(help="name=value,value,… of a setting; all combinations are run")]
With = Annotated[
    list[str] | None,
    typer.Option("--with", help="name=value of a run's option, such as steps=100 or backbone=resnet18; repeat it"),
]
DataRoot = Annotated[str | None, typer.Option(envvar="FGMIX_DATA", help="folder of the datasets")]
Device = Annotated[str, typer.Option(help="auto, cpu, or devices to share out: cuda:0,cuda:1")]


def sweep(
    out: Annotated[Path, typer.Option(help="folder of the runs")],
    preset: Preset_ = None,
    scale: Scale = None,
    datasets: Datasets = None,
    algorithms: Algorithms = None,
    test_domains: TestDomains = None,
    pairs: Pairs = None,
    trials: Trials = None,
    hparams: HParams = None,
    space: Space = None,
    set_: Set = None,
    grid: Grid = None,
    with_: With = None,
    data_root: DataRoot = None,
    device: Device = "auto",
    workers: Annotated[int, typer.Option(help="processes (local), or jobs of the array (slurm)", min=1)] = 1,
    launcher: Annotated[str, typer.Option(help="local, ray or slurm")] = "local",
    address: Annotated[str | None, typer.Option(help="ray: of the cluster; without it, one is started here")] = None,
    cpus: Annotated[int, typer.Option(help="ray, slurm: cores of a run", min=1)] = 1,
    gpus: Annotated[float, typer.Option(help="ray, slurm: GPUs of a run; ray shares one out by fractions")] = 0,
    slurm: Annotated[list[str] | None, typer.Option(help="name=value for Slurm, such as partition=gpu")] = None,
    retry_failed: Annotated[bool, typer.Option(help="run those again that failed before")] = False,
) -> None:
    """Run datasets × algorithms × test domains × draws × trials. Start it again, and only what is missing runs."""
    from fgmix.sweeps.presets import measure_cost
    from fgmix.sweeps.running import run_sweeps

    launch = _launch(launcher, workers, device, address, cpus, gpus, slurm)
    wanted = _wanted(
        preset, scale, datasets, algorithms, test_domains, pairs, trials, hparams, space, set_, grid, with_, data_root
    )
    if wanted.bench:
        measure_cost(wanted.bench, out)
        print(f"Steps measured. Table: fgmix report {out}")
    if not wanted.sweeps:
        return
    result = run_sweeps(wanted.sweeps, out, launch, retry_failed=retry_failed)
    print(f"{len(result.done)} runs done in {out}. Tables: fgmix report {out}")
    for name in result.failed:
        print(f"failed: {name} (see {out / name / 'error.json'}; --retry-failed runs it again)")
    if result.failed:
        raise typer.Exit(1)


def plan(
    preset: Preset_ = None,
    scale: Scale = None,
    datasets: Datasets = None,
    algorithms: Algorithms = None,
    test_domains: TestDomains = None,
    pairs: Pairs = None,
    trials: Trials = None,
    hparams: HParams = None,
    space: Space = None,
    set_: Set = None,
    grid: Grid = None,
    with_: With = None,
    data_root: DataRoot = None,
    device: Device = "auto",
    workers: Annotated[int, typer.Option(help="processes", min=1)] = 1,
    budget: Annotated[str | None, typer.Option(help="what fits into this time, such as 8h")] = None,
    out: Annotated[Path | None, typer.Option(help="count only what is missing in this folder")] = None,
) -> None:
    """How many runs a sweep has, how long and how much disk it takes, from a calibration of a few steps."""
    from fgmix.sweeps.durations import parse_duration
    from fgmix.sweeps.folder import is_settled
    from fgmix.sweeps.plan import cost, summary

    seconds = parse_duration(budget) if budget else None
    wanted = _wanted(
        preset, scale, datasets, algorithms, test_domains, pairs, trials, hparams, space, set_, grid, with_, data_root
    )
    if wanted.bench:
        count = len(wanted.bench["algorithms"])
        print(f"{preset} has no runs: it measures a step of {count} methods, {wanted.bench['rounds']} times each.")
    if not wanted.sweeps:
        return
    costs = cost(wanted.sweeps, device=device.split(",")[0], workers=workers)
    missing = [each for each in costs.runs if out is None or not is_settled(out / each.run.name)]
    print("\n".join(summary(missing, workers, seconds, costs.impossible)))


def _wanted(
    preset: str | None,
    scale: str | None,
    datasets: str | None,
    algorithms: str | None,
    test_domains: str | None,
    pairs: bool | None,
    trials: int | None,
    hparams: int | None,
    space: str | None,
    set_: list[str] | None,
    grid: list[str] | None,
    with_: list[str] | None,
    data_root: str | None,
) -> Preset:
    """The preset, or a sweep over the datasets and algorithms named, with everything that the user says beside."""
    from fgmix.algorithms import names
    from fgmix.sweeps import presets
    from fgmix.sweeps.sweep import Sweep

    chosen = tuple(names()) if algorithms == "all" else _listed(algorithms)
    if preset is None:
        if not datasets or not chosen:
            missing = " and ".join(["--datasets"] * (not datasets) + ["--algorithms"] * (not chosen))
            raise UserError(f"Expected --datasets and --algorithms, or a --preset. Found no {missing}.")
        if scale is not None:
            raise UserError(f"Expected --scale with a --preset, whose size it is. Found --scale {scale} alone.")
        base = presets.Preset("", (Sweep(datasets=_listed(datasets), algorithms=chosen),))
    elif datasets or chosen:
        raise UserError("Expected --preset, or --datasets and --algorithms. Found both; a preset names its own.")
    else:
        base = presets.preset(preset, scale or "paper")
    configured = {name for sweep in base.sweeps for name in sweep.algorithms}
    changes = {
        "test_domains": _listed(test_domains) or None,
        "pairs": pairs,
        "trials": trials,
        "hparams": hparams,
        "space": space,
        "common": {**run_options(with_ or []), **({"data_root": data_root} if data_root else {})} or None,
        "settings": _settings(configured, set_ or []) or None,
        "grid": _grid(configured, grid or []) or None,
    }
    said = {name: value for name, value in changes.items() if value is not None}
    sweeps = tuple(presets.changed(sweep, said) for sweep in base.sweeps)
    return presets.Preset(base.about, sweeps, base.bench)


def _launch(
    launcher: str,
    workers: int,
    device: str,
    address: str | None,
    cpus: int,
    gpus: float,
    slurm: list[str] | None,
) -> Launch:
    from fgmix.sweeps import launchers

    if launcher == "local":
        from fgmix.sweeps.launchers.local import check_devices, run_local

        devices = _listed(device)
        check_devices(devices)
        return partial(run_local, workers=workers, devices=devices)
    if launcher in launchers.NAMES and device not in ("auto", "cpu"):
        raise UserError(
            f"Expected --device auto or cpu with --launcher {launcher}. Found {device!r}. It hands GPUs out itself: "
            "ask for them with --gpus."
        )
    if launcher == "ray":
        launchers.require("ray", "ray")
        from fgmix.sweeps.launchers.ray import run_ray

        return partial(run_ray, address=address, cpus=cpus, gpus=gpus, device=device)
    if launcher == "slurm":
        launchers.require("submitit", "slurm")
        if gpus != int(gpus):
            raise bad_value("gpus", "a whole number for slurm", gpus, "Only ray shares a GPU out.")
        from fgmix.sweeps.launchers.slurm import run_slurm

        options = pairs_of(slurm or [], "--slurm")
        return partial(run_slurm, jobs=workers, cpus=cpus, gpus=int(gpus), device=device, options=options)
    raise unknown("launcher", launcher, launchers.NAMES)


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _settings(algorithms: set[str], texts: list[str]) -> dict[str, Any]:
    """Settings from texts "name=value"."""
    return {name: _setting(algorithms, name, text) for name, text in pairs_of(texts).items()}


def _grid(algorithms: set[str], texts: list[str]) -> dict[str, tuple[Any, ...]]:
    """A grid from texts "name=value,value,…"."""
    values = {name: _listed(text) for name, text in pairs_of(texts, "--grid").items()}
    for name, listed in values.items():
        if not listed:
            raise UserError(f"Expected --grid {name}=value,value,… Found no value. Name at least one.")
    return {name: tuple(_setting(algorithms, name, value) for value in listed) for name, listed in values.items()}


def _setting(algorithms: set[str], name: str, text: str) -> Any:
    """A setting in the type that the first method having it declares; a name that none has is a mistake."""
    from fgmix.algorithms import get

    configs = [get(algorithm).Config for algorithm in sorted(algorithms)]
    having = [config for config in configs if name in config.names()]
    if not having:
        raise unknown("setting of these algorithms", name, {known for config in configs for known in config.names()})
    return having[0].parse({name: text})[name]


def run_options(texts: list[str]) -> dict[str, Any]:
    """Fields of RunSpec from texts "name=value", in the fields' types."""
    import dataclasses
    import json

    from fgmix.runs.spec import RunSpec

    taken = {"dataset", "algorithm", "test_domains", "settings", "trial_seed", "hparams_seed", "data_root"}
    fields = {f.name: f.type for f in dataclasses.fields(RunSpec) if f.name not in taken}
    options: dict[str, Any] = {}
    for name, text in pairs_of(texts, "--with").items():
        if name not in fields:
            raise unknown("option of a run", name, fields)
        if "str" in str(fields[name]) or fields[name] in ("Protocol", "Averaging"):
            options[name] = text
            continue
        try:
            options[name] = json.loads(text.lower())
        except ValueError as error:
            raise UserError(f"Option `{name}` should be {fields[name]}. Found {text!r}.") from error
    if "backbone" in options:
        _check_backbone(options["backbone"])
    return options


def _check_backbone(name: str) -> None:
    """Every run of the sweep would fail on a name that nobody knows; timm takes seconds to say so."""
    from fgmix.networks import backbones
    from fgmix.networks.build import OWN_BACKBONES

    if name not in OWN_BACKBONES and name.split(".")[0] not in backbones():
        raise unknown("backbone", name, backbones(f"*{name[:6]}*"))
