"""Files are whole or absent, locks die with their process, and nothing of others is touched."""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from fgmix.errors import MachineError, UserError
from fgmix.records import files
from fgmix.records.digests import Damaged
from fgmix.records.files import (
    exclusive,
    is_held,
    read_bytes,
    read_json,
    read_lines,
    remove_temporaries,
    write_bytes,
    write_json,
)

BUSY = UserError("held")
HOLDER = """
import sys, time
from pathlib import Path
from fgmix.errors import MachineError, UserError
from fgmix.records.files import exclusive
with exclusive(Path(sys.argv[1]), UserError("held")):
    print("holding", flush=True)
    sys.stdin.read()
"""


# Atomic writes


def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record.json"
    write_json(path, {"accuracy": 0.5})
    monkeypatch.setattr(files.os, "fsync", no_space)
    with pytest.raises(MachineError, match=r"Expected to write .*record.json \(100 kB\)\. The disk is full\."):
        write_bytes(path, bytes(100_000))
    assert read_json(path) == {"accuracy": 0.5}
    assert list(tmp_path.iterdir()) == [path]


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_name_appears_only_when_the_content_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights.pt"
    seen = []
    monkeypatch.setattr(files.os, "fsync", lambda _: seen.append(path.exists()))
    write_bytes(path, b"weights")
    assert seen == [False]
    assert path.read_bytes() == b"weights"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary name that a write really uses is one that the clean-up finds."""
    (tmp_path / "keep.json").touch()

    def killed(_: int) -> None:
        (temporary,) = tmp_path.glob(".*")
        os.link(temporary, temporary.with_name(f"{temporary.name}2"))  # survives the write's own clean-up

    monkeypatch.setattr(files.os, "fsync", killed)
    write_bytes(tmp_path / "record.json", b"")
    assert len(list(tmp_path.iterdir())) == 3
    remove_temporaries(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keep.json", "record.json"]


def test_a_planted_link_is_neither_followed_nor_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even who guesses the temporary name cannot make us write elsewhere."""
    monkeypatch.setattr("fgmix.records.files.secrets.token_hex", lambda _: "guessed")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    planted = tmp_path / ".record.json.guessed.tmp"
    planted.symlink_to(victim)
    with pytest.raises(MachineError, match="File exists"):
        write_json(tmp_path / "record.json", {"x": 1})
    assert victim.read_text() == "mine"
    assert planted.is_symlink()


def test_a_link_at_the_name_itself_is_replaced_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "record.json").symlink_to(victim)
    write_json(tmp_path / "record.json", {"x": 1})
    assert victim.read_text() == "mine"
    assert not (tmp_path / "record.json").is_symlink()


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_permissions_are_those_of_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    """A group that shares a folder reads each other's results."""
    before = os.umask(umask)
    try:
        write_json(tmp_path / "record.json", {"x": 1})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "record.json").stat().st_mode) == mode


def test_equal_contents_are_equal_bytes(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"x": 1, "y": "λ"})
    write_json(tmp_path / "b.json", {"y": "λ", "x": 1})
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_a_broken_json_file_is_reported_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text("{")
    with pytest.raises(Damaged, match=r"at .*spec\.json"):
        read_json(tmp_path / "spec.json")


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EIO, MachineError), (errno.ESTALE, MachineError), (errno.EACCES, UserError)]
)
def test_a_disk_that_fails_is_told_from_a_file_that_is_forbidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[UserError]
) -> None:
    def failing(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    (tmp_path / "spec.json").touch()
    monkeypatch.setattr(os, "open", failing)
    with pytest.raises(UserError, match=re.escape(os.strerror(number))) as raised:
        read_bytes(tmp_path / "spec.json")
    assert type(raised.value) is kind


def test_notes_are_read_past_half_a_line(tmp_path: Path) -> None:
    file = tmp_path / "notes.jsonl"
    assert read_lines(file) == []
    file.write_bytes(b'{"a": 1}\n3\n\0\xff\n' + b"[" * 100_000 + b'\n{"a": 2}\n{"a": ')
    assert read_lines(file) == [{"a": 1}, {"a": 2}]


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
        with pytest.raises(UserError, match="held"), exclusive(path, BUSY):
            pass
        holder.kill()
        holder.wait()
    assert path.exists()
    assert not is_held(path)
    with exclusive(path, BUSY):
        assert is_held(path)


def test_a_lock_is_free_after_its_block_even_if_the_block_fails(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with pytest.raises(OSError, match="training failed"), exclusive(path, BUSY):
        raise OSError("training failed")  # not mistaken for a filesystem without locks
    assert not is_held(path)


def test_no_lock_file_is_no_lock(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "nowhere" / ".lock")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("look", [False, True])
def test_a_lock_held_for_an_instant_counts_as_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: bool) -> None:
    """A look takes the lock for an instant: neither a worker nor a second look mistakes it for a worker."""
    path = tmp_path / ".lock"
    other = exclusive(path, BUSY)
    other.__enter__()
    monkeypatch.setattr(files, "sleep", lambda _: other.__exit__(None, None, None))
    if look:
        assert not is_held(path)
    else:
        with exclusive(path, BUSY):
            pass


def test_a_lock_is_seen_through_a_file_that_can_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's sweep: root may write everywhere, so the answer of `access` is made up."""
    path = tmp_path / ".lock"
    path.touch()
    modes = []

    def spy(file: Path, mode: str, **options: Any) -> IO[str]:
        modes.append(mode)
        return open(file, mode, **options)

    monkeypatch.setattr(files.os, "access", lambda *_: False)
    monkeypatch.setattr(files, "open", spy, raising=False)
    assert not is_held(path)
    assert modes == ["r"]
    monkeypatch.undo()
    with hold(path) as holder:
        monkeypatch.setattr(files.os, "access", lambda *_: False)
        assert is_held(path)
        holder.kill()


def test_a_filesystem_without_locks_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object, **__: object) -> bool:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("filelock.lock_descriptor", no_locks)
    with pytest.raises(UserError, match="file locks"), exclusive(tmp_path / ".lock", BUSY):
        pass
    assert not is_held(tmp_path / ".lock")


def test_a_lock_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Choose another --out"), exclusive(tmp_path / "nowhere" / ".lock", BUSY):
        pass
