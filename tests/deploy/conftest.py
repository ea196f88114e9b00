"""Models that the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.made import striped_folder
from fgmix import Model, fit, load_model


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


@pytest.fixture
def image_model(image_model_folder: Path) -> Model:
    return load_model(image_model_folder)
