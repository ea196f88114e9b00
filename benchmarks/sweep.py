"""Runs per minute: warm workers against a new process for every run, as in DomainBed.

Both execute the same runs with the same function, number of parallel processes and threads per process: only the
start-up of a process before its first step differs. It is a cost per run, which matters most for short runs.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.steps import check_rounds
from benchmarks.turns import Turns, by_turns
from fgmix.data import load
from fgmix.errors import UserError, bad_value
from fgmix.records.schema import RunSpec, to_plain, to_spec
from fgmix.records.status import read_error
from fgmix.records.store import RunFolder
from fgmix.sweeps.design import PlannedRun, Sweep, plan
from fgmix.sweeps.execute import execute
from fgmix.sweeps.launchers.local import run_local

START = "import sys; from benchmarks import sweep; getattr(sweep, sys.argv[1])(*sys.argv[2:])"


@dataclass(frozen=True)
class SweepSpeed:
    """Speed of a sweep of small runs.

    Args:
        runs: number of runs in the sweep.
        turns: seconds of a whole sweep in each round; ours includes the start of the workers.
        cold_start: seconds in which a new process imports torch and the package, and loads the data.
    """

    runs: int
    turns: Turns
    cold_start: float

    @property
    def ours(self) -> float:
        """Runs per minute, median of the rounds."""
        return 60 * self.runs / statistics.median(self.turns.ours)

    @property
    def theirs(self) -> float:
        """Runs per minute, median of the rounds."""
        return 60 * self.runs / statistics.median(self.turns.theirs)


def measure_sweep(
    dataset: str = "digits",
    algorithm: str = "erm",
    *,
    runs: int = 16,
    steps: int = 10,
    workers: int = 2,
    rounds: int = 3,
) -> SweepSpeed:
    """Time a sweep of `runs` small runs alternately on warm workers and in a process for each run.

    Args:
        dataset: name or path.
        algorithm: a registered name.
        runs: number of runs.
        steps: steps of each run, with one evaluation at the end.
        workers: parallel processes, on both sides.
        rounds: number of rounds.
    """
    check_rounds(rounds)
    for name, value in (("runs", runs), ("workers", workers)):
        if value < 1:
            raise bad_value(name, "a positive integer", value)
    planned = small_runs(dataset, algorithm, runs, steps)
    threads = max(1, torch.get_num_threads() // workers)  # as in `run_local`

    def warm(_: int) -> None:
        with TemporaryDirectory() as out:
            run_local(planned, Path(out), workers=workers, devices=["cpu"])
            require_done(planned, Path(out))

    def cold(_: int) -> None:
        with TemporaryDirectory() as out:
            one_process_each(planned, Path(out), workers=workers, threads=threads)
            require_done(planned, Path(out))

    starts = [cold_start(dataset) for _ in range(rounds)]
    return SweepSpeed(len(planned), by_turns(warm, cold, rounds), statistics.median(starts))


def small_runs(dataset: str, algorithm: str, runs: int, steps: int) -> list[PlannedRun]:
    """The first `runs` runs of a sweep with the default settings, over as many trials as needed."""
    domains = len(load(dataset).domains)
    sweep = Sweep(
        datasets=(dataset,), algorithms=(algorithm,), trials=-(-runs // domains), hparams=1, common={"steps": steps}
    )
    return plan(sweep)[:runs]


def one_process_each(runs: Sequence[PlannedRun], out: Path, *, workers: int, threads: int) -> None:
    """Execute every run in its own process, `workers` of them at a time."""

    def start(run: PlannedRun) -> None:
        _process("run_alone", run.name, json.dumps(to_plain(run.spec)), str(out), str(threads))

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(start, runs))


def cold_start(dataset: str) -> float:
    """Seconds of a process that prepares for a run and ends."""
    started = time.perf_counter()
    _process("get_ready", dataset)
    return time.perf_counter() - started


def get_ready(dataset: str) -> None:
    """Run in the process of `cold_start`: load the data, after the imports above."""
    load(dataset)


def run_alone(name: str, spec: str, out: str, threads: str) -> None:
    """Run in the processes of `one_process_each`."""
    torch.set_num_threads(int(threads))
    execute(PlannedRun(name, to_spec(json.loads(spec), RunSpec)), out, "cpu")


def require_done(runs: Sequence[PlannedRun], out: Path) -> None:
    """Raise an error if runs failed, which would make a sweep look fast."""
    missing = [run.name for run in runs if not RunFolder(out / run.name).is_done]
    if missing:
        reason = f" ({read_error(out / missing[0])})" if RunFolder(out / missing[0]).has_failed else ""
        raise UserError(
            f"Expected {len(runs)} runs to end. Found {len(missing)} that did not, such as {missing[0]}{reason}. "
            "Try one with `fgmix train`."
        )


def _process(*arguments: str) -> None:
    subprocess.run([sys.executable, "-c", START, *arguments], check=False)
