"""Kill a run at any moment, run it again: record and weights equal those of a run never killed, bit for bit."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from fgmix.algorithms import describe_code
from fgmix.errors import UserError
from fgmix.records.schema import RunRecord
from fgmix.training import loop
from fgmix.training.loop import train
from training.killed_run import Killed, kill_at, toy_data, toy_spec

SCRIPT = Path(__file__).with_name("killed_run.py")
MOMENTS = [
    ("step", 1),
    ("step", 13),
    ("step", 29),
    ("evaluation", 2),
    ("metrics line", 2),
    ("checkpoint.pt", 1),
    ("checkpoint.pt", 4),
    ("best.pt", 1),
    ("record.json", 1),
]


def run(out: Path, algorithm: str = "erm") -> RunRecord:
    return train(toy_spec(algorithm), out, dataset=toy_data(), device="cpu", progress=False)


def run_killed(out: Path, moment: str, count: int, algorithm: str = "erm") -> None:
    """Start the run, and end it at a moment by an exception that nothing catches."""
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, moment, count)
        with pytest.raises(Killed):
            run(out, algorithm)


def assert_same_files(a: Path, b: Path) -> None:
    for name in ("record.json", "metrics.jsonl"):
        assert (a / name).read_bytes() == (b / name).read_bytes(), name
    weights = sorted(path.relative_to(a) for path in a.rglob("*.pt"))
    assert Path("best.pt") in weights
    for name in weights:
        left, right = (torch.load(folder / name, weights_only=True) for folder in (a, b))
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left), name
    assert sorted(p.name for p in a.iterdir()) == sorted(p.name for p in b.iterdir())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    record = run(tmp_path_factory.mktemp("undisturbed"))
    assert record.folder is not None
    return record.folder


@pytest.mark.parametrize(("moment", "count"), MOMENTS)
def test_resume_after_an_end_at_any_moment(undisturbed: Path, tmp_path: Path, moment: str, count: int) -> None:
    run_killed(tmp_path, moment, count)
    (folder,) = tmp_path.iterdir()
    assert not (folder / "record.json").exists()
    assert run(tmp_path).folder == folder
    assert_same_files(undisturbed, folder)


@pytest.mark.parametrize(("moment", "count", "kept"), [("step", 13, 12), ("checkpoint.pt", 4, 10)])
def test_resume_after_sigkill(undisturbed: Path, tmp_path: Path, moment: str, count: int, kept: int) -> None:
    """Nothing is tidied up; the run resumes from its last whole checkpoint, not from the start."""
    command = [sys.executable, str(SCRIPT), str(tmp_path), moment, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (folder,) = tmp_path.iterdir()
    assert moment == "step" or list(folder.glob(".checkpoint.pt.*")), "the half-written file is left"
    run(tmp_path)
    assert_same_files(undisturbed, folder)
    sessions = [json.loads(line) for line in (folder / "sessions.jsonl").read_text().splitlines()]
    assert [(s["first_step"], s["last_step"]) for s in sessions] == [(kept, 30)]


def test_resume_after_three_kills(undisturbed: Path, tmp_path: Path) -> None:
    for moment, count in [("step", 6), ("evaluation", 2), ("step", 9)]:
        run_killed(tmp_path, moment, count)
    run(tmp_path)
    assert_same_files(undisturbed, tmp_path / undisturbed.name)


def test_a_finished_run_is_read_not_run_again(undisturbed: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in undisturbed.iterdir()}
    again = run(undisturbed.parent)
    assert again.status == "done"
    assert {p: p.stat().st_mtime_ns for p in undisturbed.iterdir()} == before


@pytest.mark.parametrize("algorithm", ["fgmix", "fish", "fishr"])
def test_algorithms_with_much_state_resume_exactly(tmp_path: Path, algorithm: str) -> None:
    whole = run(tmp_path / "whole", algorithm)
    for count in (3, 11, 13):  # of the steps that are left: a checkpoint keeps 0, 8, then 16 of 30
        run_killed(tmp_path / "killed", "step", count, algorithm)
    record = run(tmp_path / "killed", algorithm)
    assert whole.folder is not None
    assert record.folder is not None
    assert_same_files(whole.folder, record.folder)


# Other code of the method


def test_a_checkpoint_of_other_code_is_refused_unless_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_killed(tmp_path, "step", 13)
    before = describe_code("erm")
    monkeypatch.setattr(loop, "describe_code", lambda _: "edited")
    with pytest.raises(UserError, match=r"other code of erm \(\w{12}, now edited\).*--accept-code"):
        run(tmp_path)
    run_accepting = partial(train, toy_spec(), tmp_path, dataset=toy_data(), progress=False, accept_code=True)
    assert run_accepting().code == f"{before}, then edited"  # a report does not take it for either


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_over_with_new_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_killed(tmp_path, "step", 1)
    monkeypatch.setattr(loop, "describe_code", lambda _: "edited")
    record = run(tmp_path)
    assert record.code == "edited"
    assert record.folder is not None
    assert json.loads((record.folder / "spec.json").read_text())["code"] == "edited"


def test_a_run_of_unknown_code_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(loop, "describe_code", lambda _: "")
        run_killed(tmp_path, "step", 13)
    assert run(tmp_path).code == describe_code("erm")


def test_a_finished_run_of_older_code_is_read_with_a_note(
    undisturbed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = run(undisturbed.parent)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(loop, "describe_code", lambda _: "edited")
    assert run(undisturbed.parent) == record
    assert "older code of erm" in capsys.readouterr().err
