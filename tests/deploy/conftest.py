"""Models that the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.made import striped_folder
from fgmix import Model, fit, load_model
from fgmix.runs.spec import RunSpec


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return striped_folder(tmp_path_factory.mktemp("pictures") / "stripes")


@pytest.fixture(scope="session")
def image_model_folder(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Path:
    """A small CNN that tells stripes apart, made as `fgmix fit` makes it."""
    out = tmp_path_factory.mktemp("image_model") / "model"
    spec = RunSpec(
        dataset=str(pictures),
        algorithm="erm",
        test_domains=(),
        backbone="small_cnn",
        pretrained=False,
        image_size=16,
        steps=30,
        batch_size=8,
        settings={"lr": 1e-2},
        averaging_start=10,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FGMIX_CACHE", str(tmp_path_factory.mktemp("cache")))
        fit(spec, out, device="cpu", progress=False)
    return out


@pytest.fixture
def image_model(image_model_folder: Path) -> Model:
    return load_model(image_model_folder)
