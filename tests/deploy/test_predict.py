"""fgmix predict: a row for every image, prepared as evaluation prepares it."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.pictures import save_dicom
from deploy.made import QUICK, vector_model
from fgmix import fit, load_model
from fgmix.data import LoadOptions, load
from fgmix.deploy.export import _collect_metadata
from fgmix.deploy.model import Model, Predictions
from fgmix.deploy.predict import list_images, predict_paths, write_rows
from fgmix.errors import UserError


def test_images_are_prepared_as_for_evaluation(
    image_model: Model, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decoded cache is the other way to the same pixels."""
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path))
    dataset = load(str(pictures), LoadOptions(image_size=16, progress=False))
    domain = dataset.domains[dataset.index("wide")]
    expected = image_model.predict_inputs(domain.inputs)
    rows = list(predict_paths(image_model, [pictures / "wide"], progress=False))
    assert [row["label"] for row in rows] == expected.labels
    assert [row["confidence"] for row in rows] == [f"{c:.4f}" for c in expected.confidence]
    assert [row["novelty"] for row in rows] == [f"{n:.4f}" for n in expected.novelty]
    assert [row["trusted"] for row in rows] == ["yes" if t else "no" for t in expected.trusted]


def test_most_stripes_are_told(image_model: Model, pictures: Path) -> None:
    rows = list(predict_paths(image_model, [pictures], progress=False))
    assert len(rows) == 72
    assert np.mean([Path(row["file"]).parent.name == row["label"] for row in rows]) > 0.9


def test_a_broken_file_costs_its_own_row_only(image_model: Model, pictures: Path, tmp_path: Path) -> None:
    sound = pictures / "dark" / "rows" / "0.png"
    (tmp_path / "cut.png").write_bytes(sound.read_bytes()[:60])
    (tmp_path / "text.jpg").write_text("not an image")
    (tmp_path / "whole.png").write_bytes(sound.read_bytes())
    out = io.StringIO()
    written = write_rows(predict_paths(image_model, [tmp_path], probabilities=True, progress=False), out)
    cut, text, whole = csv.DictReader(io.StringIO(out.getvalue()))
    assert (written.rows, written.failed) == (3, 2)
    assert cut["error"]
    assert text["error"]
    assert (cut["label"], cut["trusted"], cut["p(rows)"]) == ("", "", "")
    assert whole["label"] in ("columns", "none", "rows")
    assert sum(float(whole[f"p({name})"]) for name in ("columns", "none", "rows")) == pytest.approx(1, abs=1e-3)


def test_only_broken_files(image_model: Model, tmp_path: Path) -> None:
    (tmp_path / "text.jpg").write_text("not an image")
    (row,) = predict_paths(image_model, [tmp_path], progress=False)
    assert row["error"]


def test_files_as_given_and_folders_sorted(tmp_path: Path) -> None:
    for name in ("b.png", "a.JPG", "notes.txt", "deep/c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    found = list_images([tmp_path / "notes.txt", tmp_path])
    assert [str(path.relative_to(tmp_path)) for path in found] == ["notes.txt", "a.JPG", "b.png", "deep/c.png"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="Found none"):
        list_images([tmp_path / "empty"])


def test_a_path_without_a_file_is_a_row(image_model: Model, pictures: Path, tmp_path: Path) -> None:
    sound = pictures / "dark" / "rows" / "0.png"
    missing, found = predict_paths(image_model, [tmp_path / "nowhere.png", sound], progress=False)
    assert (missing["file"], missing["label"]) == (str(tmp_path / "nowhere.png"), "")
    assert missing["error"] == "No such file or directory"
    assert found["label"]


def test_a_manifest_names_the_images(image_model: Model, pictures: Path, tmp_path: Path) -> None:
    files = [pictures / "dark" / "rows" / "0.png", tmp_path / "gone.png", pictures / "wide" / "columns" / "1.png"]
    for name, header, rest in (("paths.csv", "path", ""), ("whole.csv", "path,label,domain", ",rows,dark")):
        (tmp_path / name).write_text("\n".join([header, *(f"{file}{rest}" for file in files)]))
        rows = list(predict_paths(image_model, [tmp_path / name], progress=False))
        assert [row["file"] for row in rows] == [str(file) for file in files]
        assert [bool(row["error"]) for row in rows] == [False, True, False]
    (tmp_path / "other.csv").write_text("file\n1.png")
    with pytest.raises(UserError, match="Expected the columns path and, if wanted, label, domain, split"):
        list(predict_paths(image_model, [tmp_path / "other.csv"], progress=False))


def test_json_lines_have_types(image_model: Model, pictures: Path, tmp_path: Path) -> None:
    paths = [pictures / "dark" / "rows" / "0.png", tmp_path / "nowhere.png"]
    rows = list(predict_paths(image_model, paths, probabilities=True, progress=False))
    out = io.StringIO()
    write_rows(iter(rows), out, "jsonl")
    found, missing = map(json.loads, out.getvalue().splitlines())
    assert found["confidence"] == float(rows[0]["confidence"])
    assert found["trusted"] is (rows[0]["trusted"] == "yes")
    assert (found["label"], found["error"]) == (rows[0]["label"], None)
    assert sum(found[f"p({name})"] for name in image_model.info.classes) == pytest.approx(1, abs=1e-3)
    assert [missing[name] for name in ("label", "confidence", "novelty", "trusted", "p(rows)")] == [None] * 5
    with pytest.raises(UserError, match="Unknown format 'xml'"):
        write_rows(iter(rows), out, "xml")  # type: ignore[arg-type]


def test_arrays(tmp_path: Path, image_model: Model, pictures: Path) -> None:
    model = vector_model(tmp_path / "model", estimated=False)
    x = np.random.default_rng(0).normal(size=(4, 5))
    np.savez(tmp_path / "x.npz", X=x)
    rows = list(predict_paths(model, [tmp_path / "x.npz"], progress=False))
    assert [row["label"] for row in rows] == model.predict(x).labels
    assert [row["row"] for row in rows] == [0, 1, 2, 3]
    np.savez(tmp_path / "y.npz", features=x)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "x.npz").read_bytes()[:200])
    for paths, expected in (
        ([tmp_path / "y.npz"], "Expected X among the arrays of .*. Found features. Rename"),
        ([tmp_path / "cut.npz"], "Expected a whole .npz file"),
        ([tmp_path / "no.npz"], "cannot be read"),
        ([tmp_path / "x.npz", tmp_path / "y.npz"], "Expected one .npz file"),
        ([pictures], "as arrays"),
    ):
        with pytest.raises(UserError, match=expected):
            list(predict_paths(model, paths, progress=False))
    with pytest.raises(UserError, match="takes image files"):
        list(predict_paths(image_model, [tmp_path / "x.npz"], progress=False))
    with pytest.raises(UserError, match="takes image files"):
        image_model.predict(np.zeros((2, 3, 16, 16), np.uint8))


def test_a_row_that_is_not_finite_costs_itself_only(tmp_path: Path) -> None:
    model = vector_model(tmp_path / "model", estimated=False)
    x = np.random.default_rng(0).normal(size=(4, 5))
    x[1, 2] = np.nan
    np.savez(tmp_path / "x.npz", X=x)
    rows = list(predict_paths(model, [tmp_path / "x.npz"], progress=False))
    assert [row["error"] for row in rows] == ["", "NaN or infinity", "", ""]
    assert [row["label"] for row in rows] == [*model.predict(x[:1]).labels, "", *model.predict(x[2:]).labels]


def test_many_rows_take_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels are made once, not once a row: 30,000 rows would take minutes."""
    model = vector_model(tmp_path / "model", estimated=False)
    np.savez(tmp_path / "x.npz", X=np.zeros((50, 5)))
    made: list[int] = []
    labels = Predictions.labels.fget
    assert labels is not None
    monkeypatch.setattr(Predictions, "labels", property(lambda said: (made.append(1), labels(said))[1]))
    assert len(list(predict_paths(model, [tmp_path / "x.npz"], progress=False))) == 50
    assert len(made) == 1


def test_more_than_eight_bits_are_told_and_not_clipped(image_model: Model, tmp_path: Path) -> None:
    Image.fromarray(np.full((20, 20), 4000, np.uint16)).save(tmp_path / "scan.png")
    (row,) = predict_paths(image_model, [tmp_path], progress=False)
    assert "more than 8 bits per channel" in row["error"]


def test_names_of_any_bytes_can_be_written(image_model: Model, pictures: Path, tmp_path: Path) -> None:
    name = os.fsdecode(b"scan\xff.png")
    (tmp_path / name).write_bytes((pictures / "dark" / "rows" / "0.png").read_bytes())
    (row,) = predict_paths(image_model, [tmp_path], progress=False)
    assert row["file"] == f"{tmp_path}/scan\\xff.png"
    assert row["label"]


def test_rows_too_large_for_the_network(vectors_folder: Path, tmp_path: Path) -> None:
    """The largest numbers of single precision are far outside; where they are not standardised, there is no answer."""
    np.savez(tmp_path / "x.npz", X=np.array([[0.0] * 5, [3e38] * 5, [-3e38] * 5], dtype=np.float32))
    near, *far = predict_paths(load_model(vectors_folder), [tmp_path / "x.npz"], progress=False)
    assert near["error"] == ""
    for row in far:
        assert float(row["novelty"]) > 1
        assert (row["trusted"], row["error"]) == ("no", "")
    plain = vector_model(tmp_path / "plain", standardize=False, estimated=False)
    near, *far = predict_paths(plain, [tmp_path / "x.npz"], progress=False)
    assert near["label"]
    assert [(row["label"], row["error"]) for row in far] == [("", "numbers too large for the network")] * 2


def test_a_model_of_deep_images_keeps_its_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DICOM files and 16-bit PNG files of the same values, from data to card, predictions and ONNX metadata."""
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for domain, offset in (("north", 0), ("south", 150)):
        for label, mean in (("ill", 900), ("well", 300)):
            folder = tmp_path / "scans" / domain / label
            folder.mkdir(parents=True)
            for i in range(6):
                values = (rng.normal(mean + offset, 40, (16, 16)).clip(0)).astype(np.uint16)
                if domain == "north":
                    Image.fromarray(values).save(folder / f"{i}.png")
                else:
                    save_dicom(folder / f"{i}.dcm", values + np.uint16(1024), RescaleSlope=1, RescaleIntercept=-1024)
    network = {"backbone": "small_cnn", "pretrained": False, "image_size": 16, "batch_size": 4}
    model = fit(tmp_path / "scans", tmp_path / "model", **{**QUICK, **network, "settings": {"lr": 1e-2}})
    low, high = map(float, model.info.spec.window.split(":"))
    assert 100 < low < 300
    assert 1000 < high < 1200
    rows = list(predict_paths(load_model(tmp_path / "model"), [tmp_path / "scans"], progress=False))
    assert np.mean([Path(row["file"]).parent.name == row["label"] for row in rows]) == 1.0
    assert model.info.spec.window in (tmp_path / "model" / "card.md").read_text()
    assert json.loads(_collect_metadata(model.info)["fgmix.window"]) == model.info.spec.window
