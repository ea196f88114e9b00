"""Models that the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.made import striped_folder, vector_model
from fgmix import Model, fit, load_model
from fgmix.deploy.export import export_model


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return striped_folder(tmp_path_factory.mktemp("pictures") / "stripes")


@pytest.fixture(scope="session")
def image_model_folder(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Path:
    """A small CNN that tells stripes apart, made as `fgmix fit` makes it."""
    out = tmp_path_factory.mktemp("image_model") / "model"
    network = {"backbone": "small_cnn", "pretrained": False, "image_size": 16}
    training = {"steps": 30, "batch_size": 8, "settings": {"lr": 1e-2}, "averaging_start": 10}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FGMIX_CACHE", str(tmp_path_factory.mktemp("cache")))
        fit(pictures, out, algorithm="erm", device="cpu", progress=False, **network, **training)
    return out


@pytest.fixture(scope="session")
def vectors_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of `vectors` with its estimate and runs. Tests may repeat the fit, and change copies only."""
    out = tmp_path_factory.mktemp("fitted") / "model"
    vector_model(out)
    return out


@pytest.fixture(scope="session")
def image_onnx(tmp_path_factory: pytest.TempPathFactory, image_model_folder: Path) -> Path:
    """The ONNX file of `image_model`: an export takes seconds."""
    pytest.importorskip("onnxruntime")
    return export_model(load_model(image_model_folder), tmp_path_factory.mktemp("onnx") / "model.onnx")


@pytest.fixture
def image_model(image_model_folder: Path) -> Model:
    return load_model(image_model_folder)
