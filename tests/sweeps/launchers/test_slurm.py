"""Runs as a job array: on submitit's own processes, and on a real Slurm that is started here where it is installed."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fgmix.errors import UserError
from fgmix.runs.spec import RunSpec
from fgmix.sweeps.folder import Outcome
from fgmix.sweeps.running import run_sweeps
from fgmix.sweeps.sweep import PlannedRun, Sweep
from sweeps import slurm_here
from sweeps.toys import Here, make_data, records, sessions, tables, toy_sweep

pytest.importorskip("submitit")

from fgmix.sweeps.launchers import slurm
from fgmix.sweeps.launchers.slurm import Share, run_slurm

# submitit leaves the processes of its local jobs to the collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "POLL_SECONDS", 0.2)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A real Slurm; this process's commands go to it."""
    if reason := slurm_here.missing():
        pytest.skip(reason)
    with slurm_here.slurm(tmp_path / "slurm") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield


def longer(data: str, steps: int = 3000) -> Sweep:
    """Runs that take seconds and checkpoint often."""
    common = {"steps": steps, "eval_every": 100, "checkpoint_every": 20, "averaging_start": 50}
    return toy_sweep(data, "erm", common=common, test_domains=("ct", "us"))


def when(condition: Callable[[], object], action: Callable[[], object]) -> threading.Thread:
    """Do something as soon as something is so, while the sweep goes on."""

    def watch() -> None:
        deadline = time.monotonic() + 120
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.02)
        action()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def assert_undisturbed(sweep: Sweep, out: Path, tmp_path: Path) -> None:
    run_sweeps([sweep], tmp_path / "undisturbed", Here(), progress=False)
    assert records(out) == records(tmp_path / "undisturbed")
    assert tables(out) == tables(tmp_path / "undisturbed")


# Without a cluster


def share_of(names: str, out: Path) -> Share:
    runs = [PlannedRun(name, RunSpec(dataset="digits", algorithm="erm")) for name in names.split()]
    return Share(runs, str(out), 1, "cpu")


def test_a_share_skips_what_is_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, str]] = []

    def note(run: PlannedRun, _: str, device: str) -> Outcome:
        ran.append((run.name, device))
        return Outcome(run.name, "done")

    monkeypatch.setattr(slurm, "execute", note)
    for name, file in (("done", "record.json"), ("bad", "error.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).touch()
    share = share_of("done new bad", tmp_path)
    share()
    assert ran == [("new", "cpu")]
    assert share.checkpoint().function is share  # what is queued again is the same


@pytest.mark.parametrize(
    ("machine", "ran"),
    [
        ("ok ok ok", "a b c"),
        ("full full", "a b"),  # the job ends
        ("full ok ok ok", "a b c a"),  # a run that was put off comes last
    ],
)
def test_a_job_ends_when_its_machine_fails_two_runs_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, ran: str
) -> None:
    tried, answers = list[str](), machine.split()

    def attempt(run: PlannedRun, *_: str) -> Outcome:
        tried.append(run.name)
        return Outcome(run.name, "done" if answers.pop(0) == "ok" else "waiting", "The disk is full.")

    monkeypatch.setattr(slurm, "execute", attempt)
    share_of("a b c", tmp_path)()
    assert tried == ran.split()


def test_an_option_that_submitit_does_not_know(tmp_path: Path) -> None:
    launch = partial(run_slurm, options={"partitoin": "gpu"}, cluster="local")
    with pytest.raises(UserError, match="partitoin"):
        run_sweeps([toy_sweep(make_data(tmp_path))], tmp_path / "out", launch, progress=False)


def test_a_machine_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"Expected Slurm's commands.*srun.*another --launcher"):
        run_sweeps([toy_sweep(make_data(tmp_path))], tmp_path / "out", run_slurm, progress=False)


def test_a_controller_that_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("srun", "sbatch"):
        (tmp_path / name).write_text(
            "#!/bin/sh\necho 'sbatch: error: Unable to contact\nslurm controller' >&2\nexit 1\n"
        )
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(UserError, match=r"Unable to contact slurm controller\).*`sinfo`"):
        run_sweeps([toy_sweep(make_data(tmp_path))], tmp_path / "out", run_slurm, progress=False)


@pytest.mark.long
def test_submitits_own_processes(tmp_path: Path) -> None:
    sweep = toy_sweep(make_data(tmp_path), "erm", "l2a_ot")
    launch = partial(run_slurm, jobs=2, cluster="local")
    result = run_sweeps([sweep], tmp_path / "out", launch, progress=False)
    assert (len(result.done), len(result.failed)) == (3, 3)
    assert len({session["pid"] for session in sessions(tmp_path / "out")}) <= 2
    assert_undisturbed(toy_sweep(make_data(tmp_path), "erm"), tmp_path / "out", tmp_path)


@pytest.mark.long
def test_a_preempted_process_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """submitit's signal for preemption in the middle of a run: the job is queued again by itself."""
    import submitit

    jobs: list[Any] = []
    submit = submitit.AutoExecutor.submit

    def noting(self: Any, *args: Any) -> Any:
        jobs.append(submit(self, *args))
        return jobs[-1]

    monkeypatch.setattr(submitit.AutoExecutor, "submit", noting)
    out, sweep = tmp_path / "out", longer(make_data(tmp_path))
    options = {"timeout_min": "60"}
    watcher = when(lambda: list(out.glob("*/checkpoint.pt")), lambda: os.kill(_child(jobs[0]), 12))
    run_sweeps([sweep], out, partial(run_slurm, cluster="local", options=options), progress=False)
    watcher.join()
    assert any(session["first_step"] > 0 for session in sessions(out))
    assert_undisturbed(sweep, out, tmp_path)


def _child(job: Any) -> int:
    """The process under submitit's controller that does the work."""
    return int(subprocess.check_output(["ps", "--ppid", str(job.job_id), "-o", "pid="], text=True).split()[0])


# With one


@pytest.mark.long
@pytest.mark.usefixtures("cluster")
def test_a_job_array_on_slurm(tmp_path: Path) -> None:
    sweep = toy_sweep(make_data(tmp_path), "erm", "l2a_ot")
    out = tmp_path / "out"
    result = run_sweeps([sweep], out, partial(run_slurm, jobs=2, options={"timeout_min": "5"}), progress=False)
    assert (len(result.done), len(result.failed)) == (3, 3)
    script = next((out / "slurm").glob("*.sh")).read_text()
    assert "--array=0-1%2" in script
    assert_undisturbed(toy_sweep(make_data(tmp_path), "erm"), out, tmp_path)


@pytest.mark.long
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("how", ["preempted", "requeued"])
def test_a_job_that_slurm_takes_its_node_from(tmp_path: Path, how: str) -> None:
    """By the signal before preemption, or requeued without one: either way its run goes on from the checkpoint."""
    out, sweep = tmp_path / "out", longer(make_data(tmp_path))

    def disturb() -> None:
        (job,) = set(subprocess.check_output(["squeue", "--noheader", "-o", "%A"], text=True).split())
        command = ["scancel", "--signal=USR2", job] if how == "preempted" else ["scontrol", "requeue", job]
        subprocess.run(command, check=True)

    watcher = when(lambda: list(out.glob("*/checkpoint.pt")), disturb)
    run_sweeps([sweep], out, partial(run_slurm, options={"timeout_min": "30"}), progress=False)
    watcher.join()
    assert any(session["first_step"] > 0 for session in sessions(out))
    assert_undisturbed(sweep, out, tmp_path)


@pytest.mark.long
@pytest.mark.usefixtures("cluster")
def test_jobs_that_end_without_a_result_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that cannot even start Python leaves no result file; without accounting only squeue knows that it ended."""
    monkeypatch.setattr("sys.executable", "/no/such/python")
    with pytest.raises(UserError, match="ended without one"):
        run_sweeps([toy_sweep(make_data(tmp_path))], tmp_path / "out", run_slurm, progress=False)
