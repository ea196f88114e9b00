"""The status of a folder, from its files alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from fgmix.errors import UserError
from fgmix.records.files import write_json
from fgmix.records.locks import hold_lock
from fgmix.records.status import Plan, is_locked, read_status, state_of, write_plan
from fgmix.records.store import RunBusy


def finish(folder: Path, *seconds: float, status: str = "done") -> None:
    """Make the files of a finished run that a status reads."""
    folder.mkdir(parents=True)
    write_json(folder / "record.json", {"status": status})
    (folder / "sessions.jsonl").write_text("".join(f'{{"seconds": {each}}}\n' for each in seconds))


def test_states_follow_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert state_of(folder) == "waiting"
    folder.mkdir()
    with hold_lock(folder / ".lock", RunBusy("held")):
        assert state_of(folder) == "running"
    assert not is_locked(folder)
    write_json(folder / "error.json", {"traceback": ""})
    assert state_of(folder) == "failed"
    with hold_lock(folder / ".lock", RunBusy("held")):
        assert state_of(folder) == "running"  # tried again
    write_json(folder / "record.json", {"status": "done"})
    assert state_of(folder) == "done"
    write_json(folder / "record.json", {"status": "diverged"})
    assert state_of(folder) == "diverged"


def test_a_status_has_rate_and_time_left(tmp_path: Path) -> None:
    write_plan(tmp_path, Plan(("a", "b", "c"), {}), {})
    finish(tmp_path / "a", 30, 50)
    finish(tmp_path / "b", 40)
    status = read_status(tmp_path)
    assert status.counts == {"done": 2, "waiting": 1}
    assert status.seconds_a_run == 60
    assert status.seconds_left is None  # nothing runs: no time is promised
    (tmp_path / "c").mkdir()
    with hold_lock(tmp_path / "c" / ".lock", RunBusy("held")):
        assert read_status(tmp_path).lines() == [
            "2 done, 0 diverged, 1 running, 0 failed, 0 waiting",
            "1 min per run, 1 at a time, 60 runs per hour; about 1 min left",
        ]
    (tmp_path / "a" / "record.json").unlink()  # a later look does not read again what was finished
    assert read_status(tmp_path, status).counts == status.counts
    assert read_status(tmp_path).counts == {"done": 1, "waiting": 2}


def test_half_a_line_of_a_session_is_passed_over(tmp_path: Path) -> None:
    """A power cut may leave one: the end of the last line, or zeros in its place."""
    finish(tmp_path / "a")
    torn = b'{"seconds": 30}\n{"seconds": 12}\n\0\0\xff\n3\n{"first_step": 4}\n{"seconds": 9'
    (tmp_path / "a" / "sessions.jsonl").write_bytes(torn)
    # The time is read where a run is left that will take as long.
    write_plan(tmp_path, Plan(("a", "another"), {}), {})
    assert read_status(tmp_path).worked == {"a": 42}


def test_no_sweep_no_status(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no plan"):
        read_status(tmp_path)
