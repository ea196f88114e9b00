"""Runs and sweeps as files: what they hold, what overrides them, and what a mistake gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fgmix.records.store import read_record
from workbench import Workbench, fgmix

RUN = """
dataset = "{arrays}"
algorithm = "fgmix"
test_domains = ["us"]
steps = 4
batch_size = 8
out = "{out}"

[settings]
lr = 0.01
tau = 0.2
"""
SWEEP = """
datasets = ["{arrays}"]
algorithms = ["erm", "fgmix"]
test_domains = "us"
trials = 1
hparams = 1
steps = 4
averaging = "none"
device = "cpu"
out = "{out}"

[settings]
weight_decay = 1e-4

[grid]
lam = [1, 3]
"""
Write = Callable[..., Path]


@pytest.fixture
def write(bench: Workbench, tmp_path: Path) -> Write:
    """Write a file with the place of the data and of the results."""

    def write(text: str, **more: str) -> Path:
        file = tmp_path / "file.toml"
        file.write_text(text.format(arrays=bench.arrays, out=tmp_path / "out", **more))
        return file

    return write


@pytest.fixture
def described(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """The resolved run of a command, which is not trained."""

    def describe(*words: object) -> dict[str, Any]:
        assert fgmix("train", *words, "--dry-run", "--quiet") == 0
        return dict(json.loads(capsys.readouterr().out))

    return describe


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The sweeps and folders that `fgmix sweep` would run."""
    from fgmix.sweeps import execute

    asked: list[Any] = []

    def instead(sweeps: Any, out: Path, launch: Any, **options: Any) -> execute.SweepResult:
        asked.append((sweeps, out, launch, options))
        return execute.SweepResult((), ())

    monkeypatch.setattr(execute, "run_sweeps", instead)
    return asked


def test_a_file_is_a_run_and_flags_override_it(write: Write, described: Callable[..., dict[str, Any]]) -> None:
    run = described(write(RUN))
    assert (run["algorithm"], run["test_domains"], run["steps"], run["batch_size"]) == ("fgmix", ["us"], 4, 8)
    assert (run["settings"]["lr"], run["settings"]["tau"]) == (0.01, 0.2)
    other = described(write(RUN), "--steps", "6", "--test-domain", "ct", "--set", "lr=0.5")
    assert (other["test_domains"], other["steps"], other["batch_size"]) == (["ct"], 6, 8)
    assert (other["settings"]["lr"], other["settings"]["tau"]) == (0.5, 0.2)


def test_a_file_overrides_the_environment(
    write: Write, described: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FGMIX_DATA", "/elsewhere")
    assert described(write(RUN))["data_root"] == "/elsewhere"
    file = write('data_root = "/here"' + RUN)
    assert described(file)["data_root"] == "/here"
    assert described(file, "--data-root", "/there")["data_root"] == "/there"


def test_a_folder_and_its_spec_repeat_the_run(
    bench: Workbench, described: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert described(bench.erm)["name"] == bench.erm.name
    assert described(bench.erm / "spec.json")["name"] == bench.erm.name
    assert described(bench.erm, "--seed", "3")["name"] != bench.erm.name
    before = (bench.erm / "record.json").read_bytes()
    assert fgmix("train", bench.erm, "--device", "cpu") == 0  # which is finished, and read
    assert f"Run: {bench.erm}" in capsys.readouterr().out
    assert (bench.erm / "record.json").read_bytes() == before


def test_every_run_is_repeated_by_its_spec(bench: Workbench, described: Callable[..., dict[str, Any]]) -> None:
    for folder in (path.parent for path in bench.sweep.glob("*/record.json")):
        assert described(folder)["name"] == folder.name == read_record(folder).spec.name


def test_a_file_is_a_sweep_and_flags_override_it(write: Write, sweeps: list[Any], bench: Workbench) -> None:
    file = write(SWEEP)
    assert fgmix("sweep", file) == 0
    assert fgmix("sweep", file, "--algorithms", "coral", "--steps", "9", "--grid", "lam=2", "--set", "lr=1") == 2
    assert fgmix("sweep", file, "--algorithms", "fgmix", "--steps", "9", "--grid", "lam=2", "--set", "lr=1") == 0
    ((sweep,), out, launch, _), ((other,), *_) = sweeps
    assert (sweep.datasets, sweep.algorithms, sweep.test_domains) == ((str(bench.arrays),), ("erm", "fgmix"), ("us",))
    assert (sweep.trials, sweep.hparams, sweep.common) == (1, 1, {"steps": 4, "averaging": "none"})
    assert (sweep.settings, sweep.grid) == ({"weight_decay": 1e-4}, {"lam": (1.0, 3.0)})
    assert (out, launch.keywords["devices"]) == (file.parent / "out", ("cpu",))
    assert (other.algorithms, other.common["steps"], other.grid) == (("fgmix",), 9, {"lam": (2.0,)})
    assert other.settings == {"weight_decay": 1e-4, "lr": 1.0}


def test_a_sweep_finds_the_data_by_the_environment(
    write: Write, sweeps: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FGMIX_DATA", "/elsewhere")
    assert fgmix("sweep", write(SWEEP)) == 0
    assert fgmix("sweep", write('data_root = "/here"' + SWEEP)) == 0
    assert fgmix("sweep", write('data_root = "/here"' + SWEEP), "--data-root", "/there") == 0
    assert [sweep.common["data_root"] for (sweep,), *_ in sweeps] == ["/elsewhere", "/here", "/there"]


def test_a_plan_reads_the_file_of_a_sweep(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert fgmix("plan", write(SWEEP.replace("[grid]\nlam = [1, 3]", "")), "--algorithms", "erm") == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == ["scans", "erm", "1", "runs"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("stepz = 3", "`steps`"),
        ("batch-size = 3", "`batch_size`"),
        ("wish = 3", "`wish`"),
        ('steps = "many"', "`steps`"),
        ("steps = ", "TOML"),
        ("test_domains = [1]", "`test_domains`"),
        ("settings = 3", "[settings]"),
        ("[settings]\nlrr = 3", "lr"),
        ("out = 3", "`out`"),
        ("algorithm = 3", "algorithm"),
        ("", "--dataset"),
    ],
)
def test_a_mistake_in_a_run_file_is_one_sentence(
    text: str, name: str, tmp_path: Path, bench: Workbench, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"dataset": f"{bench.arrays}", "algorithm": "erm", "test_domains": "us", "out": str(tmp_path / "out")}
    lines = [f'{key} = "{value}"' for key, value in given.items() if text and not text.startswith(key)]
    file = tmp_path / "run.toml"
    file.write_text("\n".join([*lines, text]))
    assert fgmix("train", file, "--quiet") == 2
    error = capsys.readouterr().err
    assert error.startswith("fgmix: ")
    assert error.count("\n") == 1
    assert name in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("datasetz = 3", "`datasets`"),
        ("trials = 0", "`trials`"),
        ("dataset = 3", "`datasets`"),
        ("grid = 3", "[grid]"),
        ("[grid]\nlam = []", "lam"),
        ("[settings]\nlr = -1", "`lr`"),
        ("workers = 0", "`workers`"),
        ('launcher = "moon"', "launcher"),
    ],
)
def test_a_mistake_in_a_sweep_file_is_one_sentence(
    text: str, name: str, write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = SWEEP.split("device")[0].replace("trials = 1\n", "" if "trials" in text else "trials = 1\n")
    assert fgmix("sweep", write(head + text), "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert name in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["nowhere.toml", "images", "arrays"])
def test_what_is_no_run_file(place: str, bench: Workbench, capsys: pytest.CaptureFixture[str]) -> None:
    assert fgmix("train", getattr(bench, place, place), "--quiet") == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("flags", [["--steps", "9"], ["--backbone", "mlp"], ["--protocol", "domainbed-2020"]])
def test_a_flag_on_which_defaults_depend_is_refused_beside_a_run(bench: Workbench, flags: list[str]) -> None:
    """The spec of a run has the defaults of its own steps, backbone and protocol filled in."""
    assert fgmix("train", bench.erm, *flags, "--dry-run") == 2
    assert fgmix("train", bench.erm / "spec.json", *flags, "--dry-run") == 2
    assert fgmix("train", bench.erm, "--seed", "5", "--set", "lr=0.5", "--dry-run") == 0


@pytest.mark.parametrize("text", ["{}", "nonsense", '{"spec": {"dataset": "digits", "algorithm": "erm"}}'])
def test_a_spec_that_was_written_by_hand(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the file to write instead."""
    (tmp_path / "spec.json").write_text(text)
    assert fgmix("train", tmp_path / "spec.json", "--out", tmp_path / "runs") == 2
    shown = capsys.readouterr().err
    assert "run.toml" in shown
    assert shown.count("\n") == 1
