"""Tiny sweeps over feature vectors: a run takes a fraction of a second."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fgmix.records.status import Outcome, record_failure
from fgmix.results.read import read_runs
from fgmix.results.report import tabulate
from fgmix.sweeps.design import PlannedRun, Sweep
from fgmix.sweeps.execute import Report, execute

QUICK = {"steps": 12, "eval_every": 4, "averaging_start": 2}


def make_data(folder: Path, name: str = "scans", *, seed: int = 0) -> str:
    """An .npz file of three domains, each three shifted Gaussians."""
    rng = np.random.default_rng(seed)
    y, domain = np.arange(90) % 3, np.arange(90) // 30
    file = folder / f"{name}.npz"
    x = rng.normal(size=(90, 4)) + y[:, None] + 0.3 * domain[:, None]
    np.savez(file, X=x, y=y, domain=domain, domains=["ct", "mr", "us"])
    return str(file)


def toy_sweep(data: str, *algorithms: str, **fields: Any) -> Sweep:
    """One draw and one trial of each, unless told otherwise."""
    quick: dict[str, Any] = {"datasets": (data,), "trials": 1, "hparams": 1, "common": QUICK}
    return Sweep(algorithms=algorithms or ("erm",), **{**quick, **fields})


class Here:
    """A launcher in this process, which notes what it was given."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def __call__(self, runs: Sequence[PlannedRun], out: Path, report: Report) -> list[Outcome]:
        outcomes = []
        for run in runs:
            self.ran.append(run.name)
            outcomes.append(execute(run, str(out), "cpu"))
            report(outcomes[-1])
        return outcomes


class Refuse(Here):
    """A launcher that trains nothing: every run fails at once, which settles it."""

    def __call__(self, runs: Sequence[PlannedRun], out: Path, _: Report) -> list[Outcome]:
        self.ran += [run.name for run in runs]
        return [record_failure(out / run.name, "no") for run in runs]


def tables(out: Path) -> str:
    """The report of a folder."""
    return tabulate(read_runs(out)).to_text()


def records(out: Path) -> dict[str, bytes]:
    """Every record's bytes, by the run's name."""
    return {path.parent.name: path.read_bytes() for path in out.glob("*/record.json")}


def sessions(out: Path) -> list[dict[str, Any]]:
    """What processes noted of their work on the runs of a folder."""
    return [json.loads(line) for file in out.glob("*/sessions.jsonl") for line in file.read_text().splitlines()]
