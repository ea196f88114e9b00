"""The command line: what it prints, and what a mistake gives (one sentence, exit code 2, nothing overwritten)."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fgmix
from fgmix.cli import main
from fgmix.records.schema import to_plain
from fgmix.records.store import read_record


@pytest.fixture
def arrays(tmp_path: Path) -> str:
    """An .npz file of three domains."""
    rng = np.random.default_rng(0)
    y, domain = np.arange(90) % 3, np.arange(90) // 30
    file = tmp_path / "scans.npz"
    np.savez(file, X=rng.normal(size=(90, 4)) + y[:, None], y=y, domain=domain, domains=["ct", "mr", "us"])
    return str(file)


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Exit code of `fgmix arguments`."""
    monkeypatch.setattr(sys, "argv", ["fgmix", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def train(arrays: str, out: Path, *more: str) -> list[str]:
    fixed = ["--dataset", arrays, "--algorithm", "erm", "--test-domain", "us", "--out", str(out)]
    return ["train", *fixed, "--steps", "4", "--device", "cpu", "--quiet", *more]


def test_train_writes_a_run_and_prints_it(
    arrays: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        call(
            monkeypatch,
            *train(
                arrays, tmp_path / "runs", "--set", "lr=0.01", "--set", "weight_decay=1e-4", "--averaging-start", "2"
            ),
        )
        == 0
    )
    printed = capsys.readouterr().out
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("scans-erm-us-")
    assert str(folder) in printed
    record = read_record(folder)
    assert f"us (test): {100 * record.test_accuracy(model='raw'):.1f} %" in printed
    assert "swa, step" in printed
    assert (record.spec.settings["lr"], record.spec.settings["weight_decay"]) == (0.01, 1e-4)


def test_a_run_that_diverged_exits_with_1_and_keeps_its_record(
    arrays: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = train(arrays, tmp_path / "runs", "--set", "lr=1e30")
    assert [call(monkeypatch, *command) for _ in range(2)] == [1, 1]  # trained, and read
    (folder,) = (tmp_path / "runs").iterdir()
    assert read_record(folder).status == "diverged"


def test_the_same_command_again_reads_the_run(
    arrays: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *train(arrays, tmp_path / "runs")) == 0
    first = capsys.readouterr().out
    assert call(monkeypatch, *train(arrays, tmp_path / "runs")) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(
    ("more", "name"),
    [
        (["--test-domain", "uss"], "'us'"),
        (["--algorithm", "erm2"], "'erm'"),
        (["--set", "lrr=1"], "'lr'"),
        (["--set", "lr"], "--set"),
        (["--set", "steps=3"], "--steps"),
        (["--steps", "0"], "`steps`"),
        (["--dataset", "digitz"], "'digits'"),
        (["--backbone", "mlpp"], "'mlp'"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    more: list[str],
    name: str,
    arrays: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(monkeypatch, *train(arrays, tmp_path / "runs", *more)) == 2
    error = capsys.readouterr().err
    assert error.startswith("fgmix: ")
    assert name in error
    assert error.count("\n") == 1
    assert "Traceback" not in error


def test_lists(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "list", "algorithms") == 0
    header, *rows, note, _ = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "method", "year", "family", "cost", "needs"]
    # Blocks of the docs, which run in the same process, may have registered others.
    ours = [n for n in fgmix.algorithms.names() if fgmix.algorithms.get(n).__module__.startswith("fgmix.")]
    assert [row.split()[0] for row in rows if row[0] != " "] == ours
    assert max(map(len, rows)) <= 80
    assert note.startswith("cost: floating-point operations")
    assert call(monkeypatch, "list", "algorithms", "--family", "context") == 0
    assert [row.split()[0] for row in capsys.readouterr().out.splitlines()[1:-2]] == ["arm", "mtl"]
    assert call(monkeypatch, "list", "algorithms", "erm") == 0
    assert "lr = 5e-05: learning rate" in capsys.readouterr().out
    assert call(monkeypatch, "list", "algorithms", "sam+co*") == 0
    composed = capsys.readouterr().out
    assert [line.split()[0] for line in composed.splitlines() if line[0] != " "] == [
        *("sam+condcad", "condcad", "sam+coral", "coral")
    ]
    assert "SAM + CORAL, 2021, flatness, 2 × the operations of ERM, 2 domains,\n        https" in composed
    assert "Match mean and covariance" in composed
    assert call(monkeypatch, "list", "datasets") == 0
    datasets = capsys.readouterr().out
    assert "digits" in datasets
    assert max(map(len, datasets.splitlines())) <= 80
    assert call(monkeypatch, "list", "datasets", "SVIRO") == 0
    assert "zoe); needs a data root" in " ".join(capsys.readouterr().out.split())
    assert call(monkeypatch, "list", "backbones") == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert (first, second.split()[0]) == ("Recommended:", "tf_efficientnet_lite0.package")
    assert call(monkeypatch, "list", "backbones", "resnet18*") == 0
    assert capsys.readouterr().out.split() == ["resnet18", "resnet18d"]
    assert call(monkeypatch, "list", "wishes") == 2


def test_missing_options_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "train", "--dataset", "digits") == 2
    assert "--algorithm" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[Path(sys.executable).with_name("fgmix")], [sys.executable, "-m", "fgmix"]])
def test_the_installed_command_prints_its_version(command: list[str | Path]) -> None:
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"fgmix {fgmix.__version__}\n"


def test_an_interruption_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fgmix.records.status.read_status", interrupted)
    assert call(monkeypatch, "status", "sweep") == 130
    assert capsys.readouterr().err == "fgmix: Interrupted.\n"  # nothing to resume
    monkeypatch.setattr("fgmix.training.loop.train", interrupted)
    words = "--dataset", "digits", "--algorithm", "erm", "--test-domain", "photo", "--out", "runs"
    assert call(monkeypatch, "train", *words) == 130
    assert "Rerun the same command" in capsys.readouterr().err


def test_a_reader_that_is_gone_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("fgmix.records.status.read_status", closed)
    assert call(monkeypatch, "status", "sweep") == 0


def test_a_dry_run_prints_the_resolved_run_and_trains_nothing(
    arrays: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *train(arrays, tmp_path / "runs", "--dry-run")) == 0
    shown = json.loads(capsys.readouterr().out)
    assert not (tmp_path / "runs").exists()
    assert call(monkeypatch, *train(arrays, tmp_path / "runs")) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert shown.pop("name") == folder.name
    assert shown == to_plain(read_record(folder).spec)
    assert None not in shown.values()


def test_every_option_of_a_run_is_a_flag_of_train_and_most_of_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fgmix.cli.fit import OMITTED
    from fgmix.cli.sweep import SWEPT
    from fgmix.records.schema import options

    for command, omitted in (("train", ()), ("fit", OMITTED), ("sweep", SWEPT), ("plan", SWEPT)):
        assert call(monkeypatch, command, "--help-all") == 0
        shown = re.sub(r"\s+", " ", capsys.readouterr().out)
        for name, field in options(omit=omitted).items():
            assert name.replace("_", "-") in shown
            assert field.help.split("-")[0].split(";")[0][:20] in shown


def test_a_shell_completes_commands_and_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the script of `fgmix --install-completion` asks for it."""
    monkeypatch.setenv("_FGMIX_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "fgmix train --algorithm erm --test-domain photo --test-d")
    monkeypatch.setenv("COMP_CWORD", "6")
    assert call(monkeypatch) == 0
    assert capsys.readouterr().out.split() == ["--test-domain"]


@pytest.mark.parametrize("closed", [("stdout",), ("stderr",), ("stdout", "stderr")])
def test_a_closed_stream_stops_no_command(closed: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """`fgmix … >&-`: Python has no stream then."""
    for name in closed:
        monkeypatch.setattr(sys, name, None)
    assert call(monkeypatch, "--version") == 0
    assert call(monkeypatch, "train") == 2
    for name in closed:
        getattr(sys, name).close()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_freed_memory_is_kept_for_the_next_tensors() -> None:
    script = """
import resource
from fgmix.training.memory import keep_freed_memory

keep_freed_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(b"1") * 40_000_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    unset = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    printed = subprocess.run([sys.executable, "-c", script], env=unset, capture_output=True, text=True, check=True)
    assert int(printed.stdout) < 100  # of 9,800 pages
