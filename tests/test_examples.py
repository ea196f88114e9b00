"""The examples run as they stand."""

from __future__ import annotations

import importlib.util
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fgmix import Sweep, fit, tabulate
from fgmix.algorithms._registry import _REGISTRY
from fgmix.data import from_arrays, load, registry
from fgmix.records import code
from fgmix.records.code import load_plugin
from fgmix.results.read import read_runs
from fgmix.sweeps.execute import run_sweeps
from sweeps.toys import Here

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def test_plain_loop(capsys: pytest.CaptureFixture[str]) -> None:
    found = runpy.run_path(str(EXAMPLES / "plain_loop.py"))
    assert capsys.readouterr().out.startswith("loss ")
    assert found["mixed"].z.shape == (32, 32)
    assert 0 < found["loss"] < torch.log(torch.tensor(4.0))  # better than guessing one of four classes


def test_rotated_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    script = EXAMPLES / "rotated_digits.py"
    monkeypatch.setattr("sys.argv", [str(script), "--seeds", "1", "--steps", "13", "--out", str(tmp_path)])
    runpy.run_path(str(script), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == 6 * ["10°", "30°", "50°", "60°", "70°", "80°"]
    assert len(list(tmp_path.glob("*/record.json"))) == 7
    assert (tmp_path / "rotated-digits.png").stat().st_size > 10_000


def test_new_method(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        found = runpy.run_path(str(EXAMPLES / "new_method.py"))["found"]
    finally:
        _REGISTRY.pop("variance_of_risks", None)
    assert all(accuracy > 0.4 for accuracy in found.values())  # better than guessing one of three classes
    assert capsys.readouterr().out.count("on the domain that was held out") == len(found) == 2


def test_beside_domainbed(monkeypatch: pytest.MonkeyPatch) -> None:
    script = str(EXAMPLES / "beside_domainbed.py")
    monkeypatch.setattr("sys.argv", [script])
    found = runpy.run_path(script)
    for row in ("| ERM (ours) |", "| CORAL (ours) |", "| ERM (DomainBed: theirs) |"):
        assert row in found["table"]
    assert len(found["written"]) == 6
    monkeypatch.setattr("sys.argv", [script, str(found["theirs"]), str(found["ours"])])
    assert runpy.run_path(script)["table"] == found["table"]


def test_figures(capsys: pytest.CaptureFixture[str]) -> None:
    found = runpy.run_path(str(EXAMPLES / "figures.py"))
    assert [path.suffix for path in found["files"]] == [".png", ".pdf", ".svg", ".npz"]
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert len(found["again"].axes) == len(found["figure"].axes)


def test_examples_are_short() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert lengths.pop("serve_onnx.py") < 140  # a program, with refusals
    assert max(lengths.values()) < 80, lengths


def test_estimator(capsys: pytest.CaptureFixture[str]) -> None:
    found = runpy.run_path(str(EXAMPLES / "estimator.py"))
    assert "accuracy on scanner 4" in capsys.readouterr().out
    low, high = found["expected"].interval
    assert low <= found["found"] <= high  # as estimated beforehand


def test_your_data(capsys: pytest.CaptureFixture[str]) -> None:
    found = runpy.run_path(str(EXAMPLES / "your_data.py"))
    assert capsys.readouterr().out.startswith("accuracy on an unseen scanner: ")
    assert (found["folder"] / "card.md").exists()
    assert found["expected"].accuracy > 0.5
    assert found["predictions"].labels == ["none", "benign", "malignant", "none", "benign"]


@pytest.mark.usefixtures("few_digits")
def test_quickstart_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its cells, but for the installation; fewer steps."""
    cells = json.loads((EXAMPLES / "quickstart.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code[0] == "%pip install -q fgmix"
    assert "steps = 100" in code[1]
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in code[1:]:
        exec(compile(cell.replace("steps = 100", "steps = 5"), "quickstart.ipynb", "exec"), names)
    assert "FGMix: " in capsys.readouterr().out
    assert names["mixed"].z.shape == (32, 32)  # type: ignore[attr-defined]


def test_novelty_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    y, d = np.tile(np.arange(40) % 2, 3), np.repeat(np.arange(3), 40)
    np.savez(tmp_path / "data.npz", X=rng.normal(size=(120, 4)) + y[:, None], y=y, domain=d)
    fit(str(tmp_path / "data.npz"), tmp_path / "model", algorithm="erm", steps=10, device="cpu", progress=False)
    script = EXAMPLES.parent / "benchmarks" / "studies" / "novelty_scores.py"
    found = runpy.run_path(str(script))["main"](tmp_path / "model", tmp_path / "data.npz")
    assert len(found) == len(capsys.readouterr().out.splitlines()) - 2 == 8
    assert all(0 <= value <= 1 for values in found.values() for value in values)


def test_feature_scales(capsys: pytest.CaptureFixture[str]) -> None:
    script = runpy.run_path(str(EXAMPLES.parent / "benchmarks" / "studies" / "feature_scales.py"))
    found = script["main"](1, 5, ("wine, thirds by malic acid",))
    assert all(0 < value < 100 for value in found["wine, thirds by malic acid"])
    assert capsys.readouterr().out.splitlines()[0].count("|") == len(script["RULES"]) + 2
    tails = script["Clipped"](np.zeros(2, np.float32), np.ones(2, np.float32), 5.0)(np.float32([[2, -9]]))
    assert tails.tolist() == [[2, -5]]


@pytest.mark.long
def test_unseen_interval(capsys: pytest.CaptureFixture[str]) -> None:
    inside = runpy.run_path(str(EXAMPLES / "unseen_interval.py"))["main"](held_out=["plain"], steps=30)
    assert inside == 1
    assert capsys.readouterr().out.endswith("1 of 1 inside\n")


def test_what_l_flat_prefers() -> None:
    """Small noise prefers large margins, large noise small norms, on Gaussian classes as on PACS."""
    script = runpy.run_path(str(EXAMPLES.parent / "benchmarks" / "studies" / "flat_preference.py"))
    rng, y, domain = np.random.default_rng(0), np.arange(360) % 3, np.arange(360) // 120
    data = from_arrays(rng.normal(size=(360, 6)) + 2 * np.eye(3, 6)[y], y, domain)
    algorithm, source = script["train_erm"](data, "2")
    small, large = (script["measure"](algorithm, source, ratio, 2, 5) for ratio in (0.05, 2.0))
    assert small[2] > 0.3
    assert large[3] < -0.3


@pytest.mark.parametrize(
    ("name", "package", "shape", "classes", "sizes", "groups"),
    [
        ("penguins", "palmerpenguins", (4,), 2, [146, 68, 119], 150),
        ("raman", "ramanchada2", (1, 512), 3, [8, 24, 14, 22, 8], 38),
        ("exercises", "seglearn", (6, 200), 7, [140, 133, 74, 70, 122, 117, 129, 117, 119, 128], 140),
    ],
)
def test_real_data_end_in_a_card_and_a_table(
    name: str,
    package: str,
    shape: tuple[int, ...],
    classes: int,
    sizes: list[int],
    groups: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    monkeypatch.setattr(registry, "_REGISTRY", {**registry._REGISTRY})
    monkeypatch.setattr(code, "_FILES", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    load_plugin(EXAMPLES / f"{name}.py")
    monkeypatch.delitem(sys.modules, name)
    data = load(name)
    assert (data.input_shape, len(data.classes), [len(domain) for domain in data.domains]) == (shape, classes, sizes)
    assert sum(len(set(domain.groups.tolist())) for domain in data.domains) == groups  # none is in two domains
    quick = {"steps": 2, "averaging": "none"}
    model = fit(name, tmp_path / "model", algorithm="erm", estimated=False, progress=False, **quick)
    assert sum(model.info.groups) == groups
    assert f" {model.info.groups[0]}," in (tmp_path / "model" / "card.md").read_text()
    sweep = Sweep(
        datasets=name, algorithms="erm", test_domains=data.domain_names[:1], trials=1, hparams=1, common=quick
    )
    run_sweeps([sweep], tmp_path / "sweep", Here(), progress=False)
    (table, *_) = tabulate(read_runs(tmp_path / "sweep"))
    assert table.title == name
