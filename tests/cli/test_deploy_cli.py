"""fgmix fit, predict and export, as one types them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cli.test_cli import call
from fgmix import load_model
from fgmix.records.locks import hold_new_file
from fgmix.results.read import NothingFinished, read_runs


def scans(path: Path) -> str:
    """Features of three scanners as an .npz file."""
    rng = np.random.default_rng(0)
    y, domain = np.arange(120) % 3, np.arange(120) // 40
    np.savez(path, X=rng.normal(size=(120, 4)) + 3 * np.eye(4)[y], y=y, domain=domain, classes=CLASSES)
    return str(path)


CLASSES = ["low", "mid", "high"]
FIT = ["--algorithm", "erm", "--steps", "20", "--device", "cpu", "--quiet"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("cli")
    data = scans(folder / "scans.npz")
    with pytest.MonkeyPatch.context() as patch:
        assert call(patch, "fit", data, "--out", str(folder / "model"), *FIT) == 0
    return data, folder / "model"


def test_fit_ends_with_five_lines(
    made: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, model = made
    assert call(monkeypatch, "fit", data, "--out", str(model), *FIT) == 0
    expected, seen, missed, trusted, card = capsys.readouterr().out.splitlines()
    estimate = load_model(model).info.estimate
    assert estimate is not None
    accuracies = [each.accuracy for each in estimate.domains]
    assert f"{100 * estimate.accuracy:.1f} %" in expected
    assert f"{100 * min(accuracies):.1f} %" in seen
    assert f"{100 * max(accuracies):.1f} %" in seen
    recalls = {name: np.mean([m.recall[c] for m in estimate.metrics.values()]) for c, name in enumerate(CLASSES)}
    assert min(recalls, key=recalls.__getitem__) in missed
    assert f"{100 * np.mean([each.trusted for each in estimate.domains]):.1f} %" in trusted
    assert card == f"Card: {model / 'card.md'}"


@pytest.mark.long
@pytest.mark.parametrize(("load", "feature"), [(load_wine, "malic_acid"), (load_breast_cancer, "mean texture")])
def test_fit_is_within_a_point_of_a_scaled_mlp(
    load: Callable[[], Any], feature: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Domains are the thirds of a feature; each is predicted by what learns from the other two."""
    data = load()
    x, y = data.data, data.target
    domain = np.argsort(np.argsort(x[:, list(data.feature_names).index(feature)])) * 3 // len(x)
    np.savez(tmp_path / "data.npz", X=x, y=y, domain=domain)
    arguments = ["--out", str(tmp_path / "model"), "--algorithm", "erm", "--device", "cpu", "--quiet"]
    assert call(monkeypatch, "fit", str(tmp_path / "data.npz"), *arguments) == 0
    found = load_model(tmp_path / "model").info.estimate
    assert found is not None
    mlps = [make_pipeline(StandardScaler(), MLPClassifier(max_iter=1000, random_state=seed)) for seed in range(3)]
    others = [
        mlp.fit(x[domain != d], y[domain != d]).score(x[domain == d], y[domain == d]) for mlp in mlps for d in range(3)
    ]
    assert found.accuracy > np.mean(others) - 0.01


def test_predict_prints_a_line_each(
    made: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, model = made
    assert call(monkeypatch, "predict", str(model), data, "--probabilities", "--quiet") == 0
    printed = capsys.readouterr().out
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert len(rows) == 120
    assert np.mean([row["label"] == ("low", "mid", "high")[i % 3] for i, row in enumerate(rows)]) > 0.7
    out = tmp_path / "said.csv"
    assert call(monkeypatch, "predict", str(model), data, "--probabilities", "--out", str(out), "--quiet") == 0
    assert out.read_text().splitlines() == printed.splitlines()
    assert call(monkeypatch, "predict", str(model), data, "--out", str(out), "--quiet") == 2  # never written over
    with hold_new_file(other := tmp_path / "other.csv"):  # as another process that predicts
        assert call(monkeypatch, "predict", str(model), data, "--out", str(other), "--quiet") == 2
    assert not other.exists()


def test_predict_writes_json_lines_and_tells_its_speed_and_what_failed(
    made: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, model = made
    np.savez(tmp_path / "some.npz", X=[[0.0, 1, 2, 3], [np.nan] * 4])
    out = tmp_path / "predictions.jsonl"
    assert call(monkeypatch, "predict", str(model), str(tmp_path / "some.npz"), "--out", str(out)) == 0
    first, second = map(json.loads, out.read_text().splitlines())
    assert 0 <= first["confidence"] <= 1
    assert second["label"] is None
    said = capsys.readouterr().err
    assert "2 rows in " in said
    assert "1 of 2 cannot be predicted; see the column `error` (the first: 1: NaN or infinity)." in said
    np.savez(tmp_path / "none.npz", X=[[np.nan] * 4])
    assert call(monkeypatch, "predict", str(model), str(tmp_path / "none.npz"), "--format", "jsonl", "--quiet") == 1
    assert json.loads(capsys.readouterr().out)["error"] == "NaN or infinity"


def test_export_writes_one_file(
    made: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, model = made
    out = str(tmp_path / "m.pt2")
    assert call(monkeypatch, "export", str(model), "--format", "pt2", "--out", out) == 0
    assert capsys.readouterr().out.startswith(f"Written and checked: {out}")
    assert call(monkeypatch, "export", str(model), "--format", "pt2", "--out", out) == 2
    assert call(monkeypatch, "export", str(model), "--format", "tflite") == 2
    assert "Unknown format 'tflite'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["fit", "nowhere/at/all", "--out", "m"], "nowhere"),
        (["fit", "DATA", "--out", "m", "--min-confidence", "2"], "`min_confidence`"),
        (["fit", "DATA", "--out", "m", "--algorithm", "fgmx"], "'fgmix'"),
        (["fit", "DATA", "--out", "m", "--algorithm", "erm", "--set", "steps=7"], "--steps"),
        (["predict", "MODEL", "DATA", "--out", "no/said.csv"], "no"),
        (["export", "MODEL", "--out", "no/model.onnx"], "no"),
        (["predict", "nowhere", "DATA"], "fgmix fit"),
        (["predict", "MODEL", "nowhere.png"], ".npz"),
    ],
)
def test_mistakes_are_sentences(
    made: tuple[str, Path],
    tmp_path: Path,
    arguments: list[str],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data, model = made
    monkeypatch.chdir(tmp_path)
    places = {"DATA": data, "MODEL": str(model)}
    assert call(monkeypatch, *(places.get(a, a) for a in arguments)) == 2
    assert name in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_reports_leave_out_runs_that_hold_nothing_out(made: tuple[str, Path]) -> None:
    _, model = made
    records = read_runs(model / "runs").records
    assert sorted(record.spec.test_domains for record in records) == [("0",), ("1",), ("2",)]
    (final,) = (model / "runs").glob("scans-erm-all-*")
    with pytest.raises(NothingFinished):
        read_runs(final)
