"""Files of a user's own: methods, datasets and backbones that every command and every worker finds."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from fgmix.algorithms import _registry as methods
from fgmix.cli import main
from fgmix.data import registry as datasets
from fgmix.errors import UserError
from fgmix.records import code
from fgmix.records.code import list_files, load_plugin
from fgmix.records.store import read_record
from fgmix.results.read import read_runs
from fgmix.sweeps.design import Sweep
from fgmix.sweeps.execute import run_sweeps
from sweeps.toys import Here, records

PLUG_IN = '''
import numpy as np
import fgmix
from fgmix.algorithms import Algorithm
from torch.nn.functional import cross_entropy


@fgmix.register("their_method")
class Theirs(Algorithm):
    def objective(self, batches):
        x, y = batches[0]
        return {"loss": cross_entropy(self.predict(x), y)}


class Recordings:
    def __init__(self, domain):
        self.domain = domain

    def __len__(self):
        return 12

    def __getitem__(self, i):
        return np.random.default_rng(100 * self.domain + i).normal(size=4) + i % 2, i % 2


@fgmix.data.register_dataset("their_data")
class Theirs:
    """Noise of two classes."""

    classes = ("quiet", "loud")

    def __init__(self, options):
        self.domains = {name: Recordings(d) for d, name in enumerate(("lab", "office", "street"))}
'''
Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a plug-in; what it registers is forgotten after the test."""
    for registry in (methods, datasets):
        monkeypatch.setattr(registry, "_REGISTRY", {**registry._REGISTRY})
    monkeypatch.setattr(code, "_FILES", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    names = []

    def write(name: str, text: str) -> Path:
        (file := tmp_path / f"{name}.py").write_text(text)
        names.append(name)
        return file

    yield write
    for name in names:
        sys.modules.pop(name, None)


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr("sys.argv", ["fgmix", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def test_the_workers_of_a_sweep_find_what_a_file_registers(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of their own; the record names the file, with a digest of it for the method and the data."""
    file = write("their_plug_in", PLUG_IN)
    what = ("--datasets", "their_data", "--algorithms", "their_method", "--test-domains", "lab", "--plugin", file)
    how = ("--trials", "1", "--hparams", "1", "--steps", "2", "--device", "cpu", "--workers", "1")
    assert run(monkeypatch, "sweep", *what, *how, "--out", tmp_path / "out") == 0
    (record,) = read_runs(tmp_path / "out").records
    assert (record.dataset, record.classes, record.domains) == (
        "their_data",
        ("quiet", "loud"),
        ("lab", "office", "street"),
    )
    method, data = record.code.split(", data ")
    assert [part.split()[1] for part in (method, data)] == ["their_plug_in.py"] * 2
    assert len(data.split()[0]) == 12


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("launcher", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_actors_and_jobs_find_what_a_file_registers(
    launcher: str, package: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's on a cluster that is started here, Slurm's as processes of submitit; both import the file by its path."""
    pytest.importorskip(package)
    module = importlib.import_module(f"fgmix.sweeps.launchers.{launcher}")
    launch = module.run_ray if launcher == "ray" else partial(module.run_slurm, cluster="local")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    load_plugin(write("their_plug_in", PLUG_IN))
    common = {"steps": 2, "averaging": "none"}
    sweep = Sweep(
        datasets="their_data", algorithms="their_method", test_domains=("lab",), trials=1, hparams=1, common=common
    )
    result = run_sweeps([sweep], tmp_path / "out", launch, progress=False)
    assert (len(result.done), result.failed, result.stopped_by) == (1, (), "")
    run_sweeps([sweep], tmp_path / "here", Here(), progress=False)
    assert records(tmp_path / "out") == records(tmp_path / "here")


def test_a_file_of_options_may_name_a_plug_in(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write("their_plug_in", PLUG_IN)
    (options := tmp_path / "run.toml").write_text(
        f'plugin = "{file}"\ndataset = "their_data"\nalgorithm = "their_method"\ntest_domains = ["lab"]\nsteps = 2\n'
    )
    assert run(monkeypatch, "train", options, "--out", tmp_path / "runs", "--device", "cpu", "--quiet") == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert read_record(folder).spec.algorithm == "their_method"
    capsys.readouterr()
    assert run(monkeypatch, "list", "datasets", "their*") == 0
    assert "Noise of two classes." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("broken", "1 / 0", "ZeroDivisionError"),
        ("wave", "", "Rename the file"),  # would hide the standard library's
        ("taken", "import fgmix\nfgmix.data.register_dataset('digits')(lambda options: {})", "registered already"),
    ],
)
def test_a_file_that_cannot_be_a_plug_in_is_one_sentence(
    write: Write, name: str, text: str, found: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "list", "datasets", "--plugin", write(name, text)) == 2
    assert found in (error := capsys.readouterr().err)
    assert error.count("\n") == 1
    assert list_files() == ()


def test_a_missing_file_is_named() -> None:
    with pytest.raises(UserError, match=r"no_such\.py"):
        load_plugin("no_such.py")
