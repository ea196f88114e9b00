"""Kill -9 at any moment, run again: the record and the weights equal those of a run never killed, bit for bit."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fgmix.records.schema import RunRecord
from fgmix.training.loop import train
from training.killed_run import toy_data, toy_spec

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


def killed(out: Path, moment: str, count: int, algorithm: str = "erm") -> None:
    command = [sys.executable, str(SCRIPT), str(out), moment, str(count), algorithm]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr


def run(out: Path, algorithm: str = "erm") -> RunRecord:
    return train(toy_spec(algorithm), out, dataset=toy_data(), device="cpu", progress=False)


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
def test_resume_after_a_kill_equals_no_kill(undisturbed: Path, tmp_path: Path, moment: str, count: int) -> None:
    killed(tmp_path, moment, count)
    (folder,) = tmp_path.iterdir()
    assert not (folder / "record.json").exists()
    record = run(tmp_path)
    assert record.folder == folder
    assert_same_files(undisturbed, folder)


def test_resume_after_three_kills(undisturbed: Path, tmp_path: Path) -> None:
    for moment, count in [("step", 6), ("evaluation", 2), ("step", 9)]:
        killed(tmp_path, moment, count)
    run(tmp_path)
    assert_same_files(undisturbed, tmp_path / undisturbed.name)


def test_a_finished_run_is_read_not_run_again(undisturbed: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in undisturbed.iterdir()}
    again = run(undisturbed.parent)
    assert again.status == "done"
    assert {p: p.stat().st_mtime_ns for p in undisturbed.iterdir()} == before


def test_the_kill_really_loses_work(undisturbed: Path, tmp_path: Path) -> None:
    """The run goes on from its checkpoint: fewer steps than the whole, more than none."""
    import json

    killed(tmp_path, "step", 13)
    run(tmp_path)
    sessions = [json.loads(line) for line in (tmp_path / undisturbed.name / "sessions.jsonl").read_text().splitlines()]
    assert [(s["first_step"], s["last_step"]) for s in sessions] == [(12, 30)]


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["fgmix", "fish", "fishr", "ddg"])
def test_methods_with_much_state_resume_exactly(tmp_path: Path, algorithm: str) -> None:
    from fgmix import algorithms

    if algorithms.get(algorithm).needs_stages:
        pytest.skip("works on images only; the contract test covers its state")
    whole = run(tmp_path / "whole", algorithm)
    for count in (3, 11, 13):  # of the steps that are left: a checkpoint keeps 0, 10, then 20 of 30
        killed(tmp_path / "killed", "step", count, algorithm)
    record = run(tmp_path / "killed", algorithm)
    assert whole.folder is not None
    assert record.folder is not None
    assert_same_files(whole.folder, record.folder)
