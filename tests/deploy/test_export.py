"""Exported files: run by other software, they say what the model says."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from deploy.made import QUICK, signals, small_image_model, small_images
from fgmix import fit, load_model
from fgmix.algorithms import get, names
from fgmix.data import from_arrays
from fgmix.deploy.export import export_model
from fgmix.deploy.model import Model
from fgmix.deploy.predict import predict_paths
from fgmix.errors import UserError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def vectors_model(vectors_folder: Path) -> Model:
    return load_model(vectors_folder)


def test_onnx_of_images_takes_pixels_and_decides(image_model: Model, image_onnx: Path, tmp_path: Path) -> None:
    """Images of the network's own size need no resizing: then file and pixels must agree closely."""
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(image_onnx), providers=["CPUExecutionProvider"])
    pixels = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), dtype=np.uint8)
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{i}.png")
    p, novelty, trusted = session.run(None, {"x": pixels})
    rows = list(predict_paths(image_model, [tmp_path / f"{i}.png" for i in range(5)], progress=False))
    classes = image_model.info.classes
    assert [classes[i] for i in p.argmax(1)] == [row["label"] for row in rows]
    np.testing.assert_allclose(p.max(1), [float(row["confidence"]) for row in rows], atol=1e-3)
    np.testing.assert_allclose(novelty, [float(row["novelty"]) for row in rows], rtol=1e-2, atol=1e-3)
    assert ["yes" if t else "no" for t in trusted] == [row["trusted"] for row in rows]


def test_the_example_without_torch(image_model: Model, image_onnx: Path, tmp_path: Path) -> None:
    """It prepares images as `fgmix predict` does, to a grey level: large, turned, transparent, in print colours."""
    example = runpy.run_path(str(EXAMPLES / "onnx_without_torch.py"))
    rng = np.random.default_rng(0)
    smooth = Image.fromarray(rng.integers(0, 256, (6, 9, 4), dtype=np.uint8)).resize((90, 60))
    turned = Image.Exif()
    turned[0x0112] = 6
    paths = [tmp_path / name for name in ("large.png", "turned.jpg", "clear.png", "print.jpg")]
    smooth.convert("RGB").save(paths[0])
    smooth.convert("RGB").save(paths[1], exif=turned)
    smooth.save(paths[2])
    smooth.convert("RGB").convert("CMYK").save(paths[3])
    found = example["predict"](str(image_onnx), paths)
    rows = list(predict_paths(image_model, paths, progress=False))
    assert [label for label, *_ in found] == [row["label"] for row in rows]
    expected = [float(row["confidence"]) for row in rows]
    np.testing.assert_allclose([confidence for _, confidence, *_ in found], expected, atol=5e-3)
    assert np.ptp(expected[:3]) > 0.1  # to leave out a step of the preparation would show
    assert ["yes" if trusted else "no" for *_, trusted in found] == [row["trusted"] for row in rows]


WITHOUT_TORCH = """
import sys
sys.modules.update(dict.fromkeys(["fgmix", "onnx", "torch"]))  # to import one of them is an error
import numpy, onnxruntime
model, inputs, outputs = sys.argv[1:]
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
p, novelty, trusted = session.run(None, {"x": numpy.load(inputs)})
numpy.savez(outputs, p=p, novelty=novelty, trusted=trusted, **session.get_modelmeta().custom_metadata_map)
"""


def test_onnx_needs_no_torch_and_carries_what_its_users_need(vectors_model: Model, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    paths = [export_model(vectors_model, tmp_path / "model.onnx"), tmp_path / "x.npy", tmp_path / "found.npz"]
    x = np.random.default_rng(1).normal(size=(700, 5)).astype(np.float32)
    x[:100] *= np.float32(10) ** (np.arange(100) % 7)[:, None]  # far from all that training has seen
    np.save(paths[1], x)
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH, *map(str, paths)], check=True)
    found, info, expected = np.load(paths[2]), vectors_model.info, vectors_model.predict(x)
    np.testing.assert_allclose(found["p"], expected.probabilities, atol=1e-5)
    np.testing.assert_allclose(found["novelty"], expected.novelty, rtol=1e-3, atol=1e-5)
    assert found["trusted"].tolist() == expected.trusted.tolist()
    assert json.loads(str(found["fgmix.classes"])) == list(info.classes)
    assert json.loads(str(found["fgmix.domains"])) == list(info.domains)
    assert info.estimate is not None
    assert float(found["fgmix.unseen_accuracy"]) == pytest.approx(info.estimate.accuracy, abs=1e-4)


def test_onnx_of_bytes_takes_what_training_took(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = small_image_model(tmp_path / "model", channels_last=True)
    session = onnxruntime.InferenceSession(str(export_model(model, tmp_path / "model.onnx")))
    x = small_images()[0][:7]
    p, novelty, _ = session.run(None, {"x": x})
    expected = model.predict(x)
    np.testing.assert_allclose(p, expected.probabilities, atol=1e-4)
    np.testing.assert_allclose(novelty, expected.novelty, rtol=1e-2)


def test_onnx_of_signals_takes_them_in_their_own_units(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    x, y, d = signals()
    options = {**QUICK, "steps": 15, "averaging": "none", "settings": {"lr": 1e-2}}
    model = fit(from_arrays(x, y, d), tmp_path / "model", **options)
    assert (model.info.kind, model.info.spec.backbone, model.info.spec.tail) == ("signals", "signal_cnn", 0.0)
    assert model.info.estimate.accuracy > 0.9
    assert (model.predict(100 * x).novelty > 1).all(), "other units"
    file = export_model(load_model(tmp_path / "model"), tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
    p, novelty, _ = session.run(None, {"x": x.astype(np.float32)})
    expected = model.predict(x)
    np.testing.assert_allclose(p, expected.probabilities, atol=1e-4)
    np.testing.assert_allclose(novelty, expected.novelty, rtol=1e-2, atol=1e-4)


def test_torch_export(vectors_model: Model, tmp_path: Path) -> None:
    path = export_model(vectors_model, tmp_path / "model.pt2", "pt2")
    x = torch.randn(11, 5)
    p, _, trusted = torch.export.load(path).module()(x)
    expected = vectors_model.predict(x.numpy())
    np.testing.assert_allclose(p.detach().numpy(), expected.probabilities, atol=1e-6)
    assert trusted.tolist() == expected.trusted.tolist()


@pytest.mark.long
@pytest.mark.parametrize("algorithm", [name for name in names() if not (get(name).head or get(name).adapts_at_test)])
def test_every_methods_model_exports(algorithm: str, tmp_path: Path) -> None:
    model = small_image_model(tmp_path / "model", algorithm=algorithm)
    program = torch.export.load(export_model(model, tmp_path / "model.pt2", "pt2")).module()
    x = small_images()[0][:5]
    with torch.no_grad():
        p, _, _ = program(torch.from_numpy(x))
    np.testing.assert_allclose(p.numpy(), model.predict(x).probabilities, atol=1e-5)


def test_a_file_that_differs_is_not_handed_over(
    vectors_model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = torch.export.load

    class Wrong:
        def __init__(self, path: Path) -> None:
            self.correct = load(path).module()

        def module(self) -> Wrong:
            return self

        def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            p, novelty, trusted = self.correct(x)
            return p + 0.01, novelty, trusted

    monkeypatch.setattr(torch.export, "load", Wrong)
    with pytest.raises(UserError, match="differs from the trained one"):
        export_model(vectors_model, tmp_path / "model.pt2", "pt2")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(vectors_model: Model, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("mine")
    with pytest.raises(UserError, match="already exists"):
        export_model(vectors_model, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_text() == "mine"
    with pytest.raises(UserError, match="Make it first"):
        export_model(vectors_model, tmp_path / "no" / "model.onnx")
    with pytest.raises(UserError, match="Did you mean 'onnx'"):
        export_model(vectors_model, tmp_path / "m", "onx")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"ends in \.onnx"):
        export_model(vectors_model, tmp_path / "m.pt2")
