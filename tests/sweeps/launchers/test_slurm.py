"""Runs as a job array: on submitit's own processes, and on a real Slurm that is started here where it is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from fgmix.errors import UserError
from fgmix.records.files import write_json
from fgmix.records.schema import RunSpec
from fgmix.records.status import Outcome
from fgmix.sweeps.design import PlannedRun, Sweep
from fgmix.sweeps.execute import run_sweeps
from fgmix.sweeps.launchers.local import LocalPool
from sweeps import slurm_here
from sweeps.toys import Here, make_data, records, sessions, tables, toy_sweep

pytest.importorskip("submitit")

from fgmix.sweeps.launchers import slurm
from fgmix.sweeps.launchers.slurm import Job, _Array, run_slurm

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


class Crew(LocalPool):
    """Workers that train nothing; all of their runs end in the same way."""

    status: Literal["done", "waiting"] = "done"
    given: list[tuple[str, str]]

    def start(self, place: str) -> Any:
        return SimpleNamespace(place=place, process=SimpleNamespace(pid=7))

    def send(self, worker: Any, run: PlannedRun) -> None:
        self.given.append((run.name, worker.place))

    def receive(self, slots: Any) -> Any:
        for slot in slots:
            yield slot, Outcome(slot.run.name, self.status)

    def stop(self, workers: Any, seconds: float = 0.0) -> None:
        pass


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> type[Crew]:
    monkeypatch.setattr(slurm, "LocalPool", Crew)
    monkeypatch.setattr(Crew, "given", [], raising=False)
    return Crew


def planned(names: str, **fields: Any) -> list[PlannedRun]:
    return [PlannedRun(name, RunSpec(dataset="digits", algorithm="erm", **fields)) for name in names.split()]


def job_of(names: str, out: Path, places: str = "cpu") -> Job:
    return Job(planned(names), out, places.split(), 1, out / "notes.jsonl")


def test_a_job_runs_as_many_runs_side_by_side_as_its_gpus_hold(tmp_path: Path, crew: type[Crew]) -> None:
    """It skips what is settled, and notes what became of all."""
    for name, file in (("done", "record.json"), ("bad", "error.json")):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / file, {"error": "no"})
    job_of("done a b bad c", tmp_path, "cuda:0 cuda:1")()
    assert crew.given == [("a", "cuda:0"), ("b", "cuda:1"), ("c", "cuda:0")]
    array = _Array([], [tmp_path / "notes.jsonl", tmp_path / "of a job that has not started"], "slurm")
    noted = array.read_outcomes()
    assert sorted(outcome.name for outcome in noted if outcome.status == "done") == ["a", "b", "c", "done"]
    assert [outcome for outcome in noted if outcome.status == "failed"] == [Outcome("bad", "failed", "no")]
    assert array.read_outcomes() == []


def test_half_a_note_is_read_when_it_is_whole(tmp_path: Path) -> None:
    notes, array = tmp_path / "notes.jsonl", _Array([], [tmp_path / "notes.jsonl"], "slurm")
    line = json.dumps({"name": "a", "status": "done", "error": ""}) + "\n"
    notes.write_text(line + line[:20])
    assert array.read_outcomes() == [Outcome("a", "done")]
    assert array.read_outcomes() == []
    notes.write_text(2 * line)
    assert array.read_outcomes() == [Outcome("a", "done")]


def test_a_job_ends_when_its_machine_fails_two_runs_in_a_row(
    tmp_path: Path, crew: type[Crew], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "status", "waiting")
    job_of("a b c", tmp_path)()
    assert [name for name, _ in crew.given] == ["a", "b"]


def signalled(job: Job, monkeypatch: pytest.MonkeyPatch) -> list[PlannedRun]:
    """The runs that a job is queued again with, if Slurm's signal comes while it waits for its first runs."""
    queued: list[PlannedRun] = []

    def receive(self: Crew, slots: Any) -> Any:  # noqa: ARG001
        queued.extend(job.checkpoint().function.runs)
        sys.exit()

    monkeypatch.setattr(Crew, "receive", receive)
    with pytest.raises(SystemExit):
        job()
    assert job.pool is None, "processes cannot be pickled"
    return queued


@pytest.mark.usefixtures("crew")
def test_what_is_queued_again_begins_with_the_runs_that_were_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = signalled(job_of("a b c d", tmp_path, "cpu cpu"), monkeypatch)
    assert [run.name for run in left] == ["a", "b", "c", "d"]


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What a sweep asks Slurm for; its jobs note at once that all of their runs are done, and end."""
    asked = SimpleNamespace(resources={}, jobs=[])

    def submit(_: object, jobs: list[Job]) -> list[Any]:
        asked.jobs += jobs
        for job in jobs:
            for run in job.runs:
                job._write(Outcome(run.name, "done"))
        return [SimpleNamespace(done=lambda: True, cancel=lambda check: None) for _ in jobs]  # noqa: ARG005

    executor = SimpleNamespace(update_parameters=asked.resources.update)
    monkeypatch.setattr(slurm, "_create_executor", lambda *_: executor)
    monkeypatch.setattr(slurm, "_submit", submit)
    return asked


@pytest.mark.usefixtures("submitted")
def test_a_look_reads_one_file_per_job_and_no_run(tmp_path: Path) -> None:
    """No run has a folder here: what is known of them is what the jobs note, both of them about all."""
    seen: list[Outcome] = []
    outcomes = run_slurm(planned("a b c d"), tmp_path, seen.append, jobs=2, cluster="local")
    assert seen == outcomes
    assert sorted(outcome.name for outcome in seen) == ["a", "b", "c", "d"]
    assert [path.name for path in tmp_path.iterdir()] == ["slurm"]
    assert len(list((tmp_path / "slurm").iterdir())) == 2


@pytest.mark.parametrize(
    ("given", "resources", "places"),
    [
        ({}, {"cpus_per_task": 1}, "auto"),
        ({"cpus": 3, "gpus": 2}, {"cpus_per_task": 6, "gpus_per_node": 2}, "cuda:0 cuda:1"),
        ({"gpus": 1, "runs_per_gpu": 2}, {"cpus_per_task": 2, "gpus_per_node": 1}, "cuda:0 cuda:0"),
        ({"gpus": 2, "device": "cpu"}, {"cpus_per_task": 2, "gpus_per_node": 2}, "cpu cpu"),
        ({"options": {"timeout_min": "60"}}, {"timeout_min": 60}, "auto"),
        ({"options": {"setup": "module load cuda"}}, {"slurm_setup": ["module load cuda"]}, "auto"),
    ],
)
def test_what_a_job_asks_for_is_what_its_runs_use(
    tmp_path: Path, submitted: SimpleNamespace, given: dict[str, Any], resources: dict[str, int], places: str
) -> None:
    run_slurm(planned("a b"), tmp_path, cluster="local", **given)
    usual = {"name": "fgmix", "timeout_min": 240, "slurm_signal_delay_s": 90, "cpus_per_task": 1}
    assert submitted.resources == usual | resources
    assert [job.places for job in submitted.jobs] == [places.split()]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"timeout_min": "6"}, "more than 6.5 minutes: runs write a checkpoint every 5 minutes.*Found timeout_min=6"),
        ({"timeout_min": "8", "signal_delay_s": "180"}, "more than 8 minutes"),
        ({"timeout_min": "0"}, "`--slurm timeout_min` should be a positive integer. Found '0'"),
        ({"timeout_min": "4h"}, "`--slurm timeout_min` should be a positive integer. Found '4h'"),
        ({"time": "04:00:00"}, "as --slurm timeout_min=MINUTES"),
    ],
)
def test_a_time_limit_that_does_not_do(tmp_path: Path, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        run_slurm(planned("a", checkpoint_minutes=5.0), tmp_path, options=options)
    assert not list(tmp_path.iterdir())


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
    result = run_sweeps([sweep], out, partial(run_slurm, jobs=2, options={"timeout_min": "7"}), progress=False)
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
def test_a_job_that_ends_before_its_runs_do(tmp_path: Path) -> None:
    """Slurm signals a job of two minutes after 60 to 90 seconds: two runs of most of a minute take several jobs."""
    common = {"steps": 50_000, "eval_every": 10_000, "checkpoint_minutes": 0.2, "averaging": "none"}
    out, sweep = tmp_path / "out", toy_sweep(make_data(tmp_path), common=common, test_domains=("ct", "us"))
    options = {"timeout_min": "2", "signal_delay_s": "30"}
    result = run_sweeps([sweep], out, partial(run_slurm, options=options), progress=False)
    assert len(result.done) == 2
    assert any("Caught signal SIGUSR2" in file.read_text() for file in (out / "slurm").glob("*_log.err"))
    parts = [(session["first_step"], session["last_step"]) for session in sessions(out)]
    assert len(parts) > 2
    assert sum(last - first for first, last in parts) == 2 * 50_000  # not one step twice


@pytest.mark.long
@pytest.mark.usefixtures("cluster")
def test_jobs_that_end_without_a_result_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that cannot even start Python leaves no result file; without accounting only squeue knows that it ended."""
    monkeypatch.setattr("sys.executable", "/no/such/python")
    with pytest.raises(UserError, match="ended without one"):
        run_sweeps([toy_sweep(make_data(tmp_path))], tmp_path / "out", run_slurm, progress=False)
