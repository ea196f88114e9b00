"""Output where it cannot be shown as it is: terminals without UTF-8, spreadsheets, names that are no text."""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from workbench import SHORT, Workbench, fgmix, save_npz


def test_a_terminal_without_utf_8(bench: Workbench) -> None:
    """What it lacks is shown as an escape."""
    plain = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [Path(sys.executable).with_name("fgmix"), "report", str(bench.sweep)]
    done = subprocess.run(command, env={**os.environ, **plain}, capture_output=True)
    assert done.returncode == 0
    assert b"One trial, hence no \\xb1." in done.stdout
    assert done.stdout.isascii()


def test_a_name_that_is_no_text(bench: Workbench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file system allows names that are no UTF-8: such data are trained on, and named with escapes."""
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/sc\xffns.npz"))
    shutil.copy(bench.arrays, file)
    run = ["train", "--dataset", file, "--algorithm", "erm", "--test-domain", "us", *SHORT, "--out", tmp_path / "runs"]
    assert fgmix(*run) == 0
    assert fgmix("report", tmp_path / "runs") == 0
    assert fgmix("report", tmp_path / "runs", "--format", "html") == 0
    assert "Traceback" not in capsys.readouterr().err


def test_a_warning_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """No path and no line of our code."""
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # restored at the end
    assert fgmix("list", "datasets") == 0
    assert warnings.formatwarning(UserWarning("two\n  lines"), UserWarning, "file.py", 3) == "note: two lines\n"


def test_predictions_hold_no_formula(bench: Workbench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "=1+1").mkdir()
    shutil.copy(bench.images / "art" / "cat" / "0.png", tmp_path / "=1+1" / "-x.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert fgmix("predict", bench.image_model, "=1+1", "--quiet") == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["file"] == "'=1+1/-x.png"
    assert 0 <= float(row["confidence"]) <= 1


def test_tables_hold_no_formula(bench: Workbench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "@scans.npz"
    shutil.copy(bench.arrays, file)
    run = ["train", "--dataset", file, "--algorithm", "erm", "--test-domain", "us", *SHORT, "--out", tmp_path / "runs"]
    assert fgmix(*run) == 0
    capsys.readouterr()
    assert fgmix("report", tmp_path / "runs", "--format", "csv") == 0
    assert {row["table"] for row in csv.DictReader(io.StringIO(capsys.readouterr().out))} == {
        "'@scans",
        "'@scans: other metrics",
        "'@scans: recall by class",
    }


def test_nothing_predicted_is_no_success(bench: Workbench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nan = save_npz(tmp_path / "nan.npz", X=[[float("nan")] * 4] * 3)
    assert fgmix("predict", bench.model, nan) == 1
    assert "note: 3 of 3 cannot be predicted; see the column `error`" in capsys.readouterr().err
    some = save_npz(tmp_path / "some.npz", X=[[float("nan")] * 4, [0.0] * 4])
    assert fgmix("predict", bench.model, some) == 0
    assert "note: 1 of 2 cannot be predicted" in capsys.readouterr().err
