"""Runs as a Slurm job array, through submitit.

The array has a few jobs, not one per run: a job loads torch and the data once and works through runs until none is
left. Job i of n starts with runs i, i + n, i + 2n, … and then helps with the others; locks keep two jobs off one run. A
job that is preempted or out of time is queued again and resumes from its run's checkpoint; one whose machine fails two
runs in a row ends. The sweep's folder and the data must be on a filesystem that all nodes share, with file locks.
"""

from __future__ import annotations

import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import FailedJobError
from submitit.helpers import DelayedSubmission

from fgmix.errors import UserError
from fgmix.runs.folder import RunFolder
from fgmix.sweeps.attempts import Health, last_attempt
from fgmix.sweeps.execute import execute
from fgmix.sweeps.folder import Outcome, is_settled, read_error
from fgmix.sweeps.running import Report
from fgmix.sweeps.sweep import PlannedRun

POLL_SECONDS = 5.0  # between looks at the folder and the queue
TIME_OUTS = 1000  # how often a job that runs out of time is queued again: each time it has got further
SHARED_NAMES = ("timeout_min", "mem_gb", "nodes", "name")  # options that submitit calls the same on every cluster


class Share:
    """What a job of the array does."""

    def __init__(self, runs: Sequence[PlannedRun], out: str, threads: int, device: str) -> None:
        self.runs, self.out, self.threads, self.device = runs, out, threads, device

    def __call__(self) -> None:
        import torch

        torch.set_num_threads(self.threads)
        out, left = Path(self.out), deque(self.runs)
        health = Health(out)
        while left and not health.is_ill:
            run = left.popleft()
            if is_settled(out / run.name):
                continue
            outcome = execute(run, self.out, self.device)
            health.note(outcome)
            if outcome.status == "waiting":
                print(f"{run.name} waits: {outcome.error}", flush=True)  # in the job's log
                left.append(run)

    def checkpoint(self) -> DelayedSubmission:
        """What submitit queues again when the job is preempted or out of time: the same; what is done is skipped."""
        return DelayedSubmission(self)


def run_slurm(
    runs: Sequence[PlannedRun],
    out: Path,
    report: Report = lambda _: None,
    *,
    jobs: int = 1,
    cpus: int = 1,
    gpus: int = 0,
    device: str = "auto",
    options: Mapping[str, str] | None = None,
    cluster: str = "slurm",
) -> list[Outcome]:
    """Execute runs as a job array; returns the outcomes as they appear in the folder.

    Args:
        runs: what to execute.
        out: the sweep's folder; logs go to its subfolder `slurm`.
        report: called after each run.
        jobs: jobs of the array.
        cpus: cores of a job, and torch's threads in it.
        gpus: GPUs of a job.
        device: "auto" is the GPU that a job is given, if it is given one; or "cpu".
        options: Slurm's own, such as {"partition": "gpu", "timeout_min": "240"}.
        cluster: "slurm", or "local" for submitit's own processes on this machine.
    """
    executor = _executor(out / "slurm", cluster)
    _set_options(executor, cpus, gpus, options or {})
    count = min(jobs, len(runs))
    folder = str(out.resolve())
    shares = [
        Share([*runs[i::count], *(run for j, run in enumerate(runs) if j % count != i)], folder, cpus, device)
        for i in range(count)
    ]
    submitted = _submit(executor, shares)
    waiting, outcomes = list(runs), list[Outcome]()
    try:
        while waiting:
            queued = _queued(submitted, cluster)  # before the look at the folder: a job's last result is not missed
            for run in [run for run in waiting if is_settled(out / run.name)]:
                waiting.remove(run)
                outcomes.append(_outcome(out / run.name))
                report(outcomes[-1])
            if not queued:
                break
            time.sleep(POLL_SECONDS)
    finally:
        for job in submitted if waiting else ():
            job.cancel(check=False)
    failures = {run.name: last_attempt(out / run.name) for run in waiting}
    return [*outcomes, *(Outcome(name, "waiting", reason) for name, reason in failures.items() if reason)]


def _executor(folder: Path, cluster: str) -> submitit.AutoExecutor:
    try:
        return submitit.AutoExecutor(folder=folder, cluster=cluster, slurm_max_num_timeout=TIME_OUTS)
    except RuntimeError as error:  # no srun on the PATH
        raise UserError(
            f"Expected Slurm's commands on this machine. {error} Start the sweep on a node of the cluster, or choose "
            "another --launcher."
        ) from error


def _submit(executor: submitit.AutoExecutor, shares: Sequence[Share]) -> list[submitit.Job[None]]:
    try:
        with executor.batch():
            return [executor.submit(share) for share in shares]
    except FailedJobError as error:  # raised at the end of the block, where the array is submitted
        reason = " ".join(str(error).split())  # sbatch's own lines, as one sentence
        raise UserError(
            f"Expected Slurm to accept the jobs. sbatch failed ({reason}). Check with `sinfo` that its controller is "
            "up, and check the --slurm options."
        ) from error


def _set_options(executor: submitit.AutoExecutor, cpus: int, gpus: int, options: Mapping[str, str]) -> None:
    resources: dict[str, Any] = {"name": "fgmix", "cpus_per_task": cpus, **({"gpus_per_node": gpus} if gpus else {})}
    for name, text in options.items():
        value = int(text) if text.isdecimal() else text
        resources[name if name in SHARED_NAMES else f"slurm_{name}"] = value
    try:
        executor.update_parameters(**resources)
    except (NameError, ValueError) as error:
        raise UserError(f"Expected options that submitit accepts. {error} Check the --slurm options.") from error


def _queued(jobs: Sequence[submitit.Job[None]], cluster: str) -> bool:
    """Whether a job waits or runs. By squeue: submitit asks sacct, and many clusters keep no accounting."""
    if cluster != "slurm":
        return not all(job.done() for job in jobs)
    ids = ",".join(dict.fromkeys(job.job_id.split("_")[0] for job in jobs))
    answer = subprocess.run(["squeue", "--noheader", "--jobs", ids], capture_output=True, text=True)
    if answer.returncode:  # squeue forgets a job minutes after its end; any other trouble passes
        return "Invalid job id" not in answer.stderr
    return bool(answer.stdout.strip())


def _outcome(folder: Path) -> Outcome:
    if RunFolder(folder).is_done:
        return Outcome(folder.name, "done")
    return Outcome(folder.name, "failed", read_error(folder))
