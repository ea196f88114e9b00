"""Runs as a Slurm job array, through submitit.

The array has a few jobs, not one per run. A job is a sweep on its node: it starts worker processes for its GPUs (see
`launchers.local`), which load torch and the data once and execute runs until none is left. Job i of n starts with runs
i, i + n, i + 2n, … and then continues with the others; locks ensure that a run is executed by one job at a time. Slurm
sends a signal to a job that is preempted or nearly out of time: its runs write checkpoints, and it is queued again.
Each job writes the outcomes of its runs to its own file; the waiting process reads only these files. The sweep's folder
and the data must be on a filesystem that all nodes share.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import FailedJobError
from submitit.helpers import DelayedSubmission

from fgmix.errors import UserError, bad_value
from fgmix.records.files import append_line, make_folder
from fgmix.records.status import Outcome
from fgmix.sweeps.design import PlannedRun
from fgmix.sweeps.execute import Report
from fgmix.sweeps.launchers import GRACE
from fgmix.sweeps.launchers.local import LocalPool

POLL_SECONDS = 10.0  # between checks of the jobs' outcomes and of the queue
TIME_OUTS = 1000  # how often a job that runs out of time is queued again: it makes progress each time
SHARED_NAMES = ("timeout_min", "mem_gb", "nodes", "name")  # options with the same name on every cluster of submitit
# Four hours: most partitions allow them, and the start of a job is a small part of them. The signal is sent 90 seconds
# before the end: `GRACE` for the checkpoints, the rest for queueing the job again.
DEFAULTS = {"timeout_min": "240", "signal_delay_s": f"{GRACE + 30:.0f}"}


@dataclass
class Job:
    """One job of the array, which works on its share of the runs first and then on the others."""

    runs: Sequence[PlannedRun]  # in this order
    out: Path
    places: Sequence[str]  # the device of each of its workers
    threads: int  # of torch, in each worker
    file: Path  # to which it writes the outcomes
    pool: LocalPool | None = None

    def __call__(self) -> None:
        self.pool = LocalPool(self.runs, self.out, self._write, self.places, self.threads)
        self.pool.run_all()

    def checkpoint(self) -> DelayedSubmission:
        """Let the workers write checkpoints and queue the job again: submitit calls this on Slurm's signal."""
        if self.pool is not None:
            busy = [slot for slot in self.pool.slots if slot.run is not None]
            self.pool.stop_all()
            self.runs = [*(slot.run for slot in busy if slot.run is not None), *self.pool.waiting]
            self.pool = None  # processes cannot be pickled
        return DelayedSubmission(self)

    def _write(self, outcome: Outcome) -> None:
        # On a full disk the outcome is lost, but the job continues: the sweep checks the runs' folders at the end.
        append_line(self.file, asdict(outcome))


def run_slurm(
    runs: Sequence[PlannedRun],
    out: Path,
    report: Report = lambda _: None,
    *,
    jobs: int = 1,
    cpus: int = 1,
    gpus: int = 0,
    runs_per_gpu: int = 1,
    device: str = "auto",
    options: Mapping[str, str] | None = None,
    cluster: str = "slurm",
) -> list[Outcome]:
    """Execute runs as a job array; return the outcomes that the jobs write. Options are those of `Sweep.run`.

    With the cluster "local" jobs are submitit's own processes on this machine.
    """
    given = {**DEFAULTS, **(options or {})}
    _check_time_limit(given, runs)
    devices = [f"cuda:{i}" for i in range(gpus)] if device == "auto" and gpus else [device] * max(1, gpus)
    places = devices * runs_per_gpu
    executor = _create_executor(out / "slurm", cluster)
    _set_options(executor, cpus * len(places), gpus, given)
    count, files = min(jobs, len(runs)), make_folder(out / "slurm").resolve() / secrets.token_hex(4)
    work = []
    for i in range(count):
        share = [*runs[i::count], *(run for j, run in enumerate(runs) if j % count != i)]
        work.append(Job(share, out.resolve(), places, cpus, Path(f"{files}_{i}_outcomes.jsonl")))
    array = _Array(_submit(executor, work), [job.file for job in work], cluster)
    outcomes, settled = dict[str, Outcome](), set[str]()
    try:
        while True:
            queued = array.is_queued()  # before reading the outcomes, so that a job's last one is not missed
            for outcome in array.read_outcomes():
                if outcome.name not in settled:  # a job also writes outcomes of runs that others have finished
                    report(outcome)
                    outcomes[outcome.name] = outcome
                if outcome.status in ("done", "failed"):
                    settled.add(outcome.name)
            if not queued or len(settled) == len(runs):
                break
            time.sleep(POLL_SECONDS)
    finally:
        array.cancel()
    return list(outcomes.values())


class _Array:
    """The jobs of an array, the files of their outcomes, and how far these have been read."""

    def __init__(self, jobs: Sequence[submitit.Job[None]], files: Sequence[Path], cluster: str) -> None:
        self.jobs, self.cluster = jobs, cluster
        self.read = dict.fromkeys(files, 0)

    def is_queued(self) -> bool:
        """Whether a job waits or runs, by squeue: submitit uses sacct, and many clusters have no accounting."""
        if self.cluster != "slurm":
            return not all(job.done() for job in self.jobs)
        ids = ",".join(dict.fromkeys(job.job_id.split("_")[0] for job in self.jobs))
        answer = subprocess.run(["squeue", "--noheader", "--jobs", ids], capture_output=True, text=True)
        if answer.returncode:  # squeue drops a job minutes after its end; other errors are assumed to be temporary
            return "Invalid job id" not in answer.stderr
        return bool(answer.stdout.strip())

    def read_outcomes(self) -> list[Outcome]:
        """Read the outcomes written since the last call: only the new lines of one file per job."""
        outcomes = []
        for path, start in self.read.items():
            if not path.exists():
                continue
            with open(path, "rb") as file:
                file.seek(start)
                whole = file.read().rpartition(b"\n")[0]
            self.read[path] = start + len(whole) + bool(whole)
            outcomes += [Outcome(**json.loads(line)) for line in whole.splitlines()]
        return outcomes

    def cancel(self) -> None:
        for job in self.jobs:
            job.cancel(check=False)


def _check_time_limit(options: Mapping[str, str], runs: Sequence[PlannedRun]) -> None:
    """Check that the jobs' time limit allows a run to reach its next checkpoint."""
    if "time" in options:
        raise UserError("Expected the time limit as --slurm timeout_min=MINUTES. Found --slurm time. Change its name.")
    for name in DEFAULTS:
        text = options[name]
        if not text.isdecimal() or not int(text):
            raise bad_value(f"--slurm {name}", "a positive integer", text)
    minutes, seconds = int(options["timeout_min"]), int(options["signal_delay_s"])
    segment = max(run.spec.checkpoint_minutes for run in runs)
    if minutes <= segment + seconds / 60:
        raise UserError(
            f"Expected a time limit of more than {segment + seconds / 60:g} minutes: runs write a checkpoint every "
            f"{segment:g} minutes, and Slurm's signal comes {seconds} seconds before the end. Found timeout_min="
            f"{minutes}. Raise --slurm timeout_min, or lower --checkpoint-minutes."
        )


def _create_executor(folder: Path, cluster: str) -> submitit.AutoExecutor:
    try:
        return submitit.AutoExecutor(folder=folder, cluster=cluster, slurm_max_num_timeout=TIME_OUTS)
    except RuntimeError as error:  # no srun on the PATH
        raise UserError(
            f"Expected Slurm's commands on this machine. {error} Start the sweep on a node of the cluster, or choose "
            "another --launcher."
        ) from error


def _submit(executor: submitit.AutoExecutor, jobs: Sequence[Job]) -> list[submitit.Job[None]]:
    try:
        with executor.batch():
            return [executor.submit(job) for job in jobs]
    except FailedJobError as error:  # raised at the end of the block, where the array is submitted
        reason = " ".join(str(error).split())  # sbatch's own lines, as one sentence
        raise UserError(
            f"Expected Slurm to accept the jobs. sbatch failed ({reason}). Check the --slurm options; `sinfo` shows "
            "whether the controller responds."
        ) from error


def _set_options(executor: submitit.AutoExecutor, cpus: int, gpus: int, options: Mapping[str, str]) -> None:
    resources: dict[str, Any] = {"name": "fgmix", "cpus_per_task": cpus, **({"gpus_per_node": gpus} if gpus else {})}
    for name, text in options.items():
        resources[name if name in SHARED_NAMES else f"slurm_{name}"] = _parse_option(name, text)
    try:
        executor.update_parameters(**resources)
    except (NameError, ValueError) as error:
        raise UserError(f"Expected options that submitit accepts. {error} Check the --slurm options.") from error


def _parse_option(name: str, text: str) -> Any:
    """Parse the value of a --slurm option as the type that submitit requires.

    >>> _parse_option("setup", "module load cuda"), _parse_option("mem_gb", "32")
    (['module load cuda'], 32)
    >>> _parse_option("additional_parameters", "reservation=night,requeue")
    {'reservation': 'night', 'requeue': True}
    """
    if name in ("setup", "teardown", "srun_args"):
        return [text]
    if name == "additional_parameters":  # those of sbatch that submitit lacks
        return {key: value or True for key, _, value in (pair.partition("=") for pair in text.split(","))}
    return int(text) if text.isdecimal() else text
