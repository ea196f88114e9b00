"""Locks end with their process; where they are local to a node, two machines must not work on one run."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest

from fgmix.errors import MachineError, UserError
from fgmix.records import locks
from fgmix.records.locks import STALE, hold_claim, hold_lock, hold_new_file, is_held, is_held_elsewhere
from fgmix.records.status import state_of
from fgmix.records.store import RunBusy, RunFolder
from fgmix.sweeps.design import plan
from fgmix.sweeps.execute import execute
from fgmix.training.loop import _Loop, train
from sweeps.toys import make_data, toy_sweep
from training.killed_run import toy_data, toy_spec

BUSY = RunBusy("held")
HOLDER = """
import sys, time
from pathlib import Path
from fgmix.errors import MachineError, UserError
from fgmix.records.locks import hold_lock
with hold_lock(Path(sys.argv[1]), UserError("held")):
    print("holding", flush=True)
    sys.stdin.read()
"""
On = Callable[[str], object]


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> On:
    """Makes what follows happen on the machine of that name; all machines get all locks."""
    monkeypatch.setattr(locks, "_lock", lambda _: True)

    @contextmanager
    def elsewhere(name: str) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(locks, "machine", lambda: name)
            yield

    return elsewhere


def age(path: Path, seconds: float = STALE + 1) -> None:
    """As if nobody had touched the file for so long."""
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def test_one_machine_at_a_time(tmp_path: Path, on: On) -> None:
    path = tmp_path / ".claim"
    with on("a"), hold_claim(path, BUSY):
        assert not is_held_elsewhere(path)  # on its own machine the lock decides
        with on("b"):
            assert is_held_elsewhere(path)
            with pytest.raises(RunBusy), hold_claim(path, BUSY):
                pass
    assert not list(tmp_path.iterdir())
    with on("b"), hold_claim(path, BUSY):
        pass


def test_one_process_at_a_time_writes_a_new_file(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    with hold_new_file(out):
        with pytest.raises(UserError, match="Another process is writing"), hold_new_file(out):
            pass
        out.touch()
    assert list(tmp_path.iterdir()) == [out]
    with pytest.raises(UserError, match="already exists"), hold_new_file(out):
        pass


def test_the_claim_of_a_dead_process_is_void(tmp_path: Path, on: On) -> None:
    """At once on its own machine, whose lock it would hold; elsewhere when it has not been touched for a while."""
    path = tmp_path / ".claim"
    with on("a"):
        locks.Claim(path, BUSY).take()
        with hold_claim(path, BUSY):
            pass
        locks.Claim(path, BUSY).take()
    with on("b"):
        with pytest.raises(RunBusy), hold_claim(path, BUSY):
            pass
        age(path)
        with hold_claim(path, BUSY):
            pass
    assert not list(tmp_path.iterdir())


def test_a_holder_touches_its_claim(tmp_path: Path, on: On, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "BEAT", 0.001)
    path, touched, utime = tmp_path / ".claim", threading.Event(), os.utime
    monkeypatch.setattr(locks.os, "utime", lambda path: (utime(path), touched.set()))
    with on("a"), hold_claim(path, BUSY):
        assert touched.wait(60)


def test_a_claim_that_is_being_written_holds(tmp_path: Path, on: On) -> None:
    (tmp_path / ".claim").touch()
    with on("b"), pytest.raises(RunBusy), hold_claim(tmp_path / ".claim", BUSY):
        pass


@pytest.mark.usefixtures("on")
def test_of_many_that_take_over_one_holds_the_claim(tmp_path: Path) -> None:
    """Sixteen at once, as often as it takes to meet in the middle of it; the others find out before they write."""
    for round_ in range(20):
        path = tmp_path / f".claim{round_}"
        locks.Claim(path, BUSY).take()
        path.write_text(path.read_text().replace(locks.machine(), "gone"))
        age(path)
        claims, start = [locks.Claim(path, BUSY) for _ in range(16)], threading.Barrier(16)

        def take(i: int, claims: list[locks.Claim] = claims, start: threading.Barrier = start) -> None:
            start.wait()
            with suppress(RunBusy):
                claims[i].take()

        threads = [threading.Thread(target=take, args=(i,)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        holding = 0
        for claim in claims:
            with suppress(RunBusy):
                claim.check()
                holding += 1
        assert holding == 1


def test_a_full_disk_is_the_machines(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="Expected to write"), hold_claim(tmp_path / "no" / "folder", BUSY):
        pass


# Runs


def test_a_run_that_another_machine_trains_is_busy(tmp_path: Path, on: On) -> None:
    planned = plan(toy_sweep(make_data(tmp_path)))[0]
    (tmp_path / planned.name).mkdir()
    with on("a"), RunFolder(tmp_path / planned.name).hold(), on("b"):
        assert state_of(tmp_path / planned.name) == "running"
        assert execute(planned, str(tmp_path), "cpu").status == "busy"
    with on("b"):
        assert execute(planned, str(tmp_path), "cpu").status == "done"


def test_a_holder_that_slept_too_long_writes_nothing_more(
    tmp_path: Path, on: On, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine was suspended in the middle of the run, and another one has finished it meanwhile."""
    spec, step, finished = toy_spec(), _Loop._step, list[bytes]()

    def train_on(machine: str) -> bytes:
        with on(machine):
            record = train(spec, tmp_path, dataset=toy_data(), device="cpu", progress=False)
        assert record.folder is not None
        return (record.folder / "record.json").read_bytes()

    def sleeps_at_15(self: _Loop, batches: list[object]) -> None:
        step(self, batches)  # type: ignore[arg-type]
        if self.state.step == 15 and not finished:
            finished.append(b"")
            age(self.folder.claim)
            finished[:] = [train_on("b")]

    monkeypatch.setattr(_Loop, "_step", sleeps_at_15)
    with pytest.raises(RunBusy):
        train_on("a")
    assert train_on("a") == finished[0]


# Locks


def hold(path: Path) -> subprocess.Popen[str]:
    """Another process that holds a lock until it is killed or its standard input is closed."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "holding\n"
    return holder


def test_a_lock_dies_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with hold(path) as holder:
        assert is_held(path)
        with pytest.raises(UserError, match="held"), hold_lock(path, BUSY):
            pass
        holder.kill()
        holder.wait()
    assert path.exists()
    assert not is_held(path)
    with hold_lock(path, BUSY):
        assert is_held(path)


def test_a_lock_is_free_after_its_block_even_if_the_block_fails(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with pytest.raises(OSError, match="training failed"), hold_lock(path, BUSY):
        raise OSError("training failed")  # not mistaken for a filesystem without locks
    assert not is_held(path)


def test_no_lock_file_is_no_lock(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "nowhere" / ".lock")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("look", [False, True])
def test_a_lock_held_for_an_instant_counts_as_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: bool) -> None:
    """A look takes the lock for an instant: neither a worker nor a second look mistakes it for a worker."""
    path = tmp_path / ".lock"
    other = hold_lock(path, BUSY)
    other.__enter__()
    monkeypatch.setattr(locks, "sleep", lambda _: other.__exit__(None, None, None))
    if look:
        assert not is_held(path)
    else:
        with hold_lock(path, BUSY):
            pass


def test_a_lock_is_seen_through_a_file_that_can_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's sweep: root may write everywhere, so the answer of `access` is made up."""
    path = tmp_path / ".lock"
    path.touch()
    modes = []

    def spy(file: Path, mode: str, **options: Any) -> IO[str]:
        modes.append(mode)
        return open(file, mode, **options)

    monkeypatch.setattr(locks.os, "access", lambda *_: False)
    monkeypatch.setattr(locks, "open", spy, raising=False)
    assert not is_held(path)
    assert modes == ["r"]
    monkeypatch.undo()
    with hold(path) as holder:
        monkeypatch.setattr(locks.os, "access", lambda *_: False)
        assert is_held(path)
        holder.kill()


def test_a_filesystem_without_locks_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object, **__: object) -> bool:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("filelock.lock_descriptor", no_locks)
    with pytest.raises(UserError, match="file locks"), hold_lock(tmp_path / ".lock", BUSY):
        pass
    assert not is_held(tmp_path / ".lock")


def test_a_lock_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Choose another --out"), hold_lock(tmp_path / "nowhere" / ".lock", BUSY):
        pass
