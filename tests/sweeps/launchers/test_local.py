"""Worker processes: warm, replaced when they die, ended with their parent. Kill -9 of anything changes no table."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.spawn import get_preparation_data
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fgmix.cli import STOPPED
from fgmix.errors import UserError
from fgmix.records.status import Outcome, read_status, state_of
from fgmix.sweeps.design import plan
from fgmix.sweeps.execute import run_sweeps
from fgmix.sweeps.launchers import MAX_IN_A_ROW, local
from fgmix.sweeps.launchers.local import assign_devices, run_local
from sweeps.toys import make_data, records, sessions, tables, toy_sweep

Work = Callable[..., None]
FGMIX = Path(sys.executable).with_name("fgmix")


def test_a_worker_is_kept_and_replaced_when_it_is_killed(tmp_path: Path) -> None:
    """l2a_ot needs convolutions, which feature vectors have none of: its runs fail, the others do not."""
    out, seen = tmp_path / "out", list[Outcome]()
    sweep = toy_sweep(make_data(tmp_path), "erm", "l2a_ot")

    def launch(runs, out, report):  # type: ignore[no-untyped-def]
        def note(outcome: Outcome) -> None:
            seen.append(outcome)
            report(outcome)
            if len(seen) == 2:
                (worker,) = multiprocessing.active_children()
                assert worker.pid
                os.kill(worker.pid, signal.SIGKILL)

        return run_local(runs, out, note, workers=1, devices=["cpu"])

    result = run_sweeps([sweep], out, launch, progress=False)
    assert sorted(outcome.name for outcome in seen) == sorted([*result.done, *result.failed])
    assert [name.split("-")[1] for name in (*result.done, *result.failed)] == ["erm"] * 3 + ["l2a_ot"] * 3
    assert "convolutional" in json.loads((out / result.failed[0] / "error.json").read_text())["error"]
    pids = {session["pid"] for session in sessions(out)}
    assert len(pids) == 2  # three trainings in the killed process and the one that replaced it
    assert os.getpid() not in pids


class ThreadProcess:
    """A thread in the place of a worker's process; it dies by closing its end of the pipe."""

    def __init__(self, target: Work, args: tuple[Any, ...], daemon: bool) -> None:
        theirs, *others = args
        pipe = Connection(os.dup(theirs.fileno()))  # the parent closes its own copy
        self.thread = threading.Thread(target=self._work, args=(target, pipe, *others), daemon=daemon)
        self.start, self.join = self.thread.start, self.thread.join

    def _work(self, target: Work, pipe: Connection, *others: Any) -> None:
        with pipe, suppress(EOFError):  # the end of the sweep
            target(pipe, *others)

    def kill(self) -> None: ...

    def terminate(self) -> None: ...


@pytest.fixture
def work_in_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[Work], None]:
    """Replaces what workers do by a function that trains nothing."""
    context = SimpleNamespace(Pipe=multiprocessing.Pipe, Process=ThreadProcess)
    monkeypatch.setattr(local, "multiprocessing", SimpleNamespace(get_context=lambda _: context))
    return lambda work: monkeypatch.setattr(local, "_work", work)


def test_a_run_that_kills_its_workers_is_failed_and_the_others_go_on(
    tmp_path: Path, work_in_threads: Callable[[Work], None]
) -> None:
    def die_at_mr(pipe: Connection, *_: Any) -> None:
        while "-mr-" not in (name := pipe.recv().name):
            pipe.send(Outcome(name, "done"))

    work_in_threads(die_at_mr)
    runs = plan(toy_sweep(make_data(tmp_path)))
    outcomes = {outcome.name: outcome for outcome in run_local(runs, tmp_path, devices=["cpu"])}
    bad = next(run.name for run in runs if run.spec.test_domains == ("mr",))
    assert {name for name, outcome in outcomes.items() if outcome.status == "done"} == {r.name for r in runs} - {bad}
    assert "died 3 times" in outcomes[bad].error
    assert state_of(tmp_path / bad) == "failed"


def test_workers_that_die_between_runs_are_replaced(tmp_path: Path, work_in_threads: Callable[[Work], None]) -> None:
    def die_after_each(pipe: Connection, out: str, device: str, threads: int, workers: int) -> None:
        assert (out, device, threads) == (str(tmp_path), "cpu", 1)
        pipe.send(Outcome(pipe.recv().name, "done" if workers == 2 else "failed"))  # two of them share the cores

    work_in_threads(die_after_each)
    runs = plan(toy_sweep(make_data(tmp_path)))
    outcomes = run_local(runs, tmp_path, workers=2, devices=["cpu"])
    assert sorted(outcome.name for outcome in outcomes) == sorted(run.name for run in runs)
    assert {outcome.status for outcome in outcomes} == {"done"}


@pytest.fixture
def one_bad_device(work_in_threads: Callable[[Work], None]) -> None:
    """On `bad` the machine fails every run, on `good` none, once `bad` has failed two."""
    failures = threading.Semaphore(0)

    def work(pipe: Connection, _: str, device: str, *__: int) -> None:
        waits = True
        while True:
            name = pipe.recv().name
            if device == "bad":
                pipe.send(Outcome(name, "waiting", "The disk is full."))
                failures.release()
                return
            for _ in range(MAX_IN_A_ROW if waits else 0):
                assert failures.acquire(timeout=60)
            waits = False
            pipe.send(Outcome(name, "done"))

    work_in_threads(work)


@pytest.mark.usefixtures("one_bad_device")
def test_a_worker_whose_machine_fails_takes_no_more_runs_and_the_others_do_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = plan(toy_sweep(make_data(tmp_path), "erm", "coral"))
    outcomes = run_local(runs, tmp_path, workers=2, devices=["bad", "good"])
    assert sorted(o.name for o in outcomes if o.status == "done") == sorted(run.name for run in runs)
    assert len([o for o in outcomes if o.status == "waiting"]) == MAX_IN_A_ROW
    assert capsys.readouterr().err == "note: A worker on bad takes no more runs. The disk is full.\n"
    assert not list(tmp_path.glob("*/error.json"))


@pytest.mark.usefixtures("one_bad_device")
def test_a_sweep_whose_every_worker_fails_stops_and_fails_no_run(tmp_path: Path) -> None:
    sweep = toy_sweep(make_data(tmp_path), "erm", "coral")
    launch = partial(run_local, devices=["bad"])
    result = run_sweeps([sweep], tmp_path / "out", launch, progress=False)
    assert (result.done, result.failed, result.stopped_by) == ((), (), "The disk is full.")
    assert result.waiting == tuple(run.name for run in plan(sweep))


@pytest.mark.parametrize(
    ("gpus", "options", "places"),
    [
        (4, {}, "cuda:0 cuda:1 cuda:2 cuda:3"),
        (2, {"runs_per_gpu": 2}, "cuda:0 cuda:1 cuda:0 cuda:1"),
        (2, {"workers": 3}, "cuda:0 cuda:1 cuda:0"),
        (4, {"devices": ["cuda:1", "cuda:3"]}, "cuda:1 cuda:3"),
        (4, {"devices": ["cpu"]}, "cpu"),
        (0, {}, "auto"),
        (0, {"workers": 2}, "auto auto"),
    ],
)
def test_gpus_are_shared_out(monkeypatch: pytest.MonkeyPatch, gpus: int, options: dict[str, Any], places: str) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert assign_devices(**{"devices": ["auto"], **options}) == places.split()


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_without_a_gpu_none_is_shared(device: str) -> None:
    with pytest.raises(UserError, match="Expected GPUs that hold 2 runs each"):
        assign_devices([device], runs_per_gpu=2)


@pytest.mark.parametrize(
    ("visible", "device", "sees"),
    [
        (None, "cuda:2", "2"),
        ("4,5,7", "cuda:2", "7"),
        ("GPU-8932f937,GPU-0", "cuda:0", "GPU-8932f937"),
        ("0", "cuda:1", ""),  # gone since it was counted: none, not another worker's
        ("4,5", "cpu", "4,5"),
        ("4,5", "cuda", "4,5"),
    ],
)
def test_a_worker_sees_its_gpu_only(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, device: str, sees: str
) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert local._hide_other_gpus(device) == device.partition(":")[0]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == sees


def test_a_gpu_is_counted_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not here is told; no context of CUDA's is made, which no worker could use."""
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    local.check_devices(["cuda", "cuda:0", "cuda:1", "cpu"])
    for name in ("cuda:2", "cuda:x"):
        with pytest.raises(UserError, match=f"Unknown device '{name}'.*Known: cuda:0, cuda:1"):
            local.check_devices(["cuda:0", name])


# Real sweeps, killed for good


def command(data: str, out: Path) -> list[str]:
    """Six runs of a second or so each on two workers, with many checkpoints."""
    what = ["--datasets", data, "--algorithms", "erm,coral", "--trials", "1", "--hparams", "1", "--workers", "2"]
    options = ["--steps=400", "--eval-every=50", "--checkpoint-every=10"]
    return [str(FGMIX), "sweep", *what, *options, "--averaging-start=20", "--device", "cpu", "--out", str(out)]


@pytest.fixture
def start(data: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `fgmix sweep` on a folder; what is left of it is ended after the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(out: Path) -> subprocess.Popen[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        started.append(
            subprocess.Popen(
                command(data, out), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def workers_of(parent: int) -> list[int]:
    """Process ids of a sweep's workers."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent and "spawn_main" in stat.with_name("cmdline").read_text():
                found.append(int(stat.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def wait_until(condition: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert process is None or process.poll() is None, "the sweep ended too early"
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def undisturbed(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same sweep, never killed."""
    out = tmp_path_factory.mktemp("undisturbed")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command(data, out), env=environment, check=True, capture_output=True, timeout=500)
    return out


def assert_same(out: Path, undisturbed: Path) -> None:
    assert records(out) == records(undisturbed)
    assert len(records(out)) == 6
    assert tables(out) == tables(undisturbed)


def assert_no_step_twice(out: Path) -> None:
    assert sum(session["last_step"] - session["first_step"] for session in sessions(out)) == 6 * 400


MOMENTS = {  # what is in the folder when the kill comes
    "first lock": "*/.lock",
    "first evaluation": "*/metrics.jsonl",
    "first record": "*/record.json",
}


@pytest.mark.long
@pytest.mark.parametrize("moment", MOMENTS)
def test_kill_9_of_the_sweep(start, undisturbed: Path, tmp_path: Path, moment: str) -> None:  # type: ignore[no-untyped-def]
    """Its workers end with it, whatever it was doing; started again, it goes on."""
    sweep = start(tmp_path)
    wait_until(lambda: list(tmp_path.glob(MOMENTS[moment])), sweep)
    workers = workers_of(sweep.pid)
    assert workers
    sweep.kill()
    sweep.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    assert read_status(tmp_path).counts["running"] == 0
    assert read_status(tmp_path).left > 0
    assert start(tmp_path).wait(timeout=500) == 0
    assert_same(tmp_path, undisturbed)
    assert_no_step_twice(tmp_path)  # the workers wrote checkpoints before they ended


@pytest.mark.long
def test_a_signal_to_the_sweep(start, undisturbed: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """It ends with its own exit code when its runs have written checkpoints."""
    sweep = start(tmp_path)
    wait_until(lambda: list(tmp_path.glob(MOMENTS["first evaluation"])), sweep)
    sweep.terminate()
    _, errors = sweep.communicate(timeout=500)
    assert sweep.returncode == STOPPED
    assert errors.splitlines()[-1] == "fgmix: Stopped by SIGTERM. Rerun the same command to resume."
    assert not workers_of(sweep.pid)
    assert start(tmp_path).wait(timeout=500) == 0
    assert_same(tmp_path, undisturbed)
    assert_no_step_twice(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("moment", MOMENTS)
def test_kill_9_of_a_worker(start, undisturbed: Path, tmp_path: Path, moment: str) -> None:  # type: ignore[no-untyped-def]
    """The sweep does not even stop."""
    sweep = start(tmp_path)
    wait_until(lambda: list(tmp_path.glob(MOMENTS[moment])), sweep)
    for pid in workers_of(sweep.pid):
        os.kill(pid, signal.SIGKILL)
    assert sweep.wait(timeout=500) == 0
    assert_same(tmp_path, undisturbed)


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 8])
def test_sweeps_on_one_folder_never_run_a_run_twice(  # type: ignore[no-untyped-def]
    start, undisturbed: Path, tmp_path: Path, count: int
) -> None:
    sweeps = [start(tmp_path) for _ in range(count)]
    assert [sweep.wait(timeout=500) for sweep in sweeps] == [0] * count
    assert_same(tmp_path, undisturbed)
    whole = [(session["first_step"], session["last_step"]) for session in sessions(tmp_path)]
    assert whole == [(0, 400)] * 6  # every run had one session, from its first step to its last
    assert len({session["pid"] for session in sessions(tmp_path)}) > 2  # and more than one sweep took part


@pytest.mark.parametrize(("text", "imported"), [("run()", False), ("if __name__ == '__main__':\n    run()", True)])
def test_a_script_is_imported_by_workers_only_if_that_does_not_run_it(
    text: str, imported: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = ModuleType("__main__")
    script.__file__ = str(tmp_path / "script.py")
    (tmp_path / "script.py").write_text(text)
    monkeypatch.setitem(sys.modules, "__main__", script)
    with local._hide_unguarded_script():
        assert ("init_main_from_path" in get_preparation_data("worker")) == imported
    assert sys.modules["__main__"] is script
