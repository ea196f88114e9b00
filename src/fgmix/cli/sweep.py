"""fgmix sweep, plan, status: many runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fgmix.errors import UserError, unknown

if TYPE_CHECKING:
    from fgmix.benchmark.sweep import Sweep

Datasets = Annotated[str, typer.Option(help="names or paths, with commas between")]
Algorithms = Annotated[str, typer.Option(help="names, with commas between; `all` for every registered one")]
TestDomains = Annotated[str | None, typer.Option(help="domains to hold out, with commas between; all by default")]
Pairs = Annotated[bool, typer.Option(help="also hold out pairs, for leave-one-domain-out selection")]
Trials = Annotated[int, typer.Option(help="trials, each with its own splits")]
HParams = Annotated[int, typer.Option(help="draws of hyper-parameters; 1 is the defaults alone")]
Space = Annotated[str, typer.Option(help="search space: domainbed or paper")]
Set = Annotated[list[str] | None, typer.Option("--set", help="name=value of a setting that all methods having it take")]
With = Annotated[
    list[str] | None,
    typer.Option("--with", help="name=value of a run's option, such as steps=100 or backbone=resnet18; repeat it"),
]
DataRoot = Annotated[str | None, typer.Option(envvar="FGMIX_DATA", help="folder of the datasets")]
Device = Annotated[str, typer.Option(help="auto, cpu, or devices to share out: cuda:0,cuda:1")]


def sweep(
    datasets: Datasets,
    algorithms: Algorithms,
    out: Annotated[Path, typer.Option(help="folder of the runs")],
    test_domains: TestDomains = None,
    pairs: Pairs = False,
    trials: Trials = 3,
    hparams: HParams = 20,
    space: Space = "domainbed",
    set_: Set = None,
    with_: With = None,
    data_root: DataRoot = None,
    device: Device = "auto",
    workers: Annotated[int, typer.Option(help="processes")] = 1,
    launcher: Annotated[str, typer.Option(help="local")] = "local",
    retry_failed: Annotated[bool, typer.Option(help="run those again that failed before")] = False,
) -> None:
    """Run datasets × algorithms × test domains × draws × trials. Start it again, and only what is missing runs."""
    from fgmix.benchmark.launchers.local import run_local
    from fgmix.benchmark.running import run_sweep

    if launcher != "local":
        raise unknown("launcher", launcher, ["local"])
    wanted = _sweep(datasets, algorithms, test_domains, pairs, trials, hparams, space, set_, with_, data_root)
    devices = device.split(",")
    result = run_sweep(
        wanted,
        out,
        lambda runs, folder, report: run_local(runs, folder, workers=workers, devices=devices, report=report),
        retry_failed=retry_failed,
    )
    print(f"{len(result.done)} runs done in {out}.")
    for name in result.failed:
        print(f"failed: {name} (see {out / name / 'error.json'}; --retry-failed runs it again)")
    if result.failed:
        raise typer.Exit(1)


def plan(
    datasets: Datasets,
    algorithms: Algorithms,
    test_domains: TestDomains = None,
    pairs: Pairs = False,
    trials: Trials = 3,
    hparams: HParams = 20,
    space: Space = "domainbed",
    set_: Set = None,
    with_: With = None,
    data_root: DataRoot = None,
    device: Device = "auto",
    workers: Annotated[int, typer.Option(help="processes")] = 1,
    budget: Annotated[str | None, typer.Option(help="what fits into this time, such as 8h")] = None,
) -> None:
    """How many runs a sweep has, how long and how much disk it takes, from a calibration of a few steps."""
    from fgmix.benchmark.cost import Estimate, calibrate, estimate, fitting, parse_duration, readable_duration, total
    from fgmix.benchmark.sweep import PlannedRun
    from fgmix.training import name_run

    wanted = _sweep(datasets, algorithms, test_domains, pairs, trials, hparams, space, set_, with_, data_root)
    calibrations: dict[tuple[str, str], Any] = {}
    costs: dict[tuple[str, str], list[Estimate]] = {}
    runs = []
    for spec, data in wanted.runs():
        key = (data.name, spec.algorithm)
        if key not in calibrations:
            calibrations[key] = calibrate(spec, data, device=device.split(",")[0])
        each = estimate(spec, data, calibrations[key])
        costs.setdefault(key, []).append(each)
        runs.append((PlannedRun(name_run(spec, data), spec), each))
    for (dataset, algorithm), estimates in costs.items():
        part = total(estimates)
        print(f"{dataset:16} {algorithm:16} {part.runs:6} runs  {readable_duration(part.seconds / workers):>12}")
    whole = total(each for _, each in runs)
    print(
        f"{whole.runs} runs, about {readable_duration(whole.seconds / workers)} on {workers} worker(s), "
        f"{whole.bytes / 1e9:.2f} GB of weights."
    )
    if budget is not None:
        fit = fitting(runs, parse_duration(budget), workers)
        trials_done = Counter(run.spec.trial_seed for run in fit)
        by_trial = ", ".join(f"trial {trial}: {count}" for trial, count in sorted(trials_done.items()))
        print(f"Into {budget} fit the first {len(fit)} of {whole.runs} runs ({by_trial or 'none'}).")


def _sweep(
    datasets: str,
    algorithms: str,
    test_domains: str | None,
    pairs: bool,
    trials: int,
    hparams: int,
    space: str,
    set_: list[str] | None,
    with_: list[str] | None,
    data_root: str | None,
) -> Sweep:
    from fgmix.algorithms import get, names
    from fgmix.benchmark.sweep import Sweep

    chosen = tuple(names()) if algorithms == "all" else _listed(algorithms)
    common = run_options(with_ or [])
    if data_root:
        common["data_root"] = data_root
    return Sweep(
        datasets=_listed(datasets),
        algorithms=chosen,
        test_domains=_listed(test_domains) if test_domains else None,
        pairs=pairs,
        trials=trials,
        hparams=hparams,
        space=space,  # type: ignore[arg-type]  # checked by the draws
        common=common,
        settings=_settings([get(name).Config for name in chosen], set_ or []),
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _settings(configs: list[Any], texts: list[str]) -> dict[str, Any]:
    """Settings by the types of the first method that has each; a name that none has is a mistake."""
    from fgmix.cli.train import pairs_of

    found: dict[str, Any] = {}
    for name, text in pairs_of(texts).items():
        having = [config for config in configs if name in config.names()]
        if not having:
            raise unknown("setting of these algorithms", name, {n for config in configs for n in config.names()})
        found |= having[0].parse({name: text})
    return found


def run_options(texts: list[str]) -> dict[str, Any]:
    """Fields of RunSpec from texts "name=value", in the fields' types."""
    import dataclasses
    import json

    from fgmix.cli.train import pairs_of
    from fgmix.spec import RunSpec

    taken = {"dataset", "algorithm", "test_domains", "settings", "trial_seed", "hparams_seed", "data_root"}
    fields = {f.name: f.type for f in dataclasses.fields(RunSpec) if f.name not in taken}
    options: dict[str, Any] = {}
    for name, text in pairs_of(texts).items():
        if name not in fields:
            raise unknown("option of a run", name, fields)
        if "str" in str(fields[name]) or fields[name] in ("Protocol", "Averaging"):
            options[name] = text
            continue
        try:
            options[name] = json.loads(text.lower())
        except ValueError as error:
            raise UserError(f"Option `{name}` should be {fields[name]}. Found {text!r}.") from error
    return options
