"""A network of a user's own trains with every method, and is part of what identifies a run."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fgmix import RunSpec, fit, load_model, register_backbone, train
from fgmix.algorithms import get, names
from fgmix.data import from_arrays
from fgmix.deploy.export import export_model
from fgmix.errors import UserError
from fgmix.networks import backbones, build_featurizer, registry
from fgmix.networks.preprocessing import normalisation_of
from fgmix.records import code
from fgmix.records.schema import to_plain
from fgmix.training.prepare import choose_load_options, new_algorithm
from fgmix.training.resolve import resolve

NET = """
import fgmix
from torch import nn


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.conv(x).relu()


@fgmix.register_backbone("tiny", mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.2), interpolation="bicubic", image_size=48)
def make(input_shape):
    width = 8
    layers = [Block(width), nn.AvgPool2d(2), Block(width), nn.AvgPool2d(2), Block(width)]
    return nn.Sequential(nn.Conv2d(input_shape[0], width, 3), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
"""
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, size=(36, 3, 16, 16), dtype=np.uint8)
DATA = from_arrays(IMAGES, np.arange(36) % 2, np.arange(36) // 12, name="scans")
QUICK: dict[str, Any] = {"dataset": "scans", "steps": 2, "averaging": "none", "backbone": "tiny"}
Load = Callable[..., None]


def forget() -> None:
    sys.modules.pop("tiny_net", None)
    registry._REGISTRY.pop("tiny", None)
    for cached in (code.keep_source, code._examine):
        cached.cache_clear()


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Import a module with a backbone afresh."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(text: str = NET) -> None:
        forget()
        (tmp_path / "tiny_net.py").write_text(text)
        importlib.invalidate_caches()
        importlib.import_module("tiny_net")

    load()
    yield load
    forget()


@pytest.mark.usefixtures("load")
@pytest.mark.parametrize("algorithm", [name for name in names() if get(name).needs_stages] + ["erm", "fgmix", "miro"])
def test_every_kind_of_method_trains_it(algorithm: str) -> None:
    spec = resolve(RunSpec(algorithm=algorithm, test_domains="2", **QUICK), DATA)
    built = new_algorithm(spec, "ab", "cd")
    x = torch.rand(4, 3, 16, 16)
    metrics = built.step([(x, torch.tensor([0, 1, 0, 1]))] * 2)
    assert torch.isfinite(metrics["loss"])
    assert built.predict(x).shape == (4, 2)


def test_its_source_identifies_a_run(load: Load) -> None:
    spec = RunSpec(algorithm="erm", test_domains="2", **QUICK)
    resolved = resolve(spec, DATA)
    assert (resolved.backbone, len(resolved.backbone_digest), resolved.pretrained) == ("tiny", 12, False)
    load("# a remark\n" + NET)
    assert resolve(spec, DATA).name == resolved.name
    load(NET.replace("width = 8", "width = 16"))
    assert resolve(spec, DATA).name != resolved.name
    ours = resolve(RunSpec(algorithm="erm", test_domains="2", **{**QUICK, "backbone": "small_cnn"}), DATA)
    assert "backbone_digest" not in to_plain(ours)  # names of runs made before do not change


@pytest.mark.usefixtures("load")
def test_it_declares_how_images_are_prepared() -> None:
    spec = RunSpec(algorithm="erm", test_domains="2", **QUICK)
    assert choose_load_options(spec).file_size == 48
    assert normalisation_of("tiny").interpolation == "bicubic"
    resolved = resolve(spec, DATA)
    assert (resolved.mean, resolved.std) == ((0.5, 0.4, 0.3), (0.2, 0.2, 0.2))
    g = new_algorithm(resolved, "ab", "cd").featurizer.eval()
    x = torch.rand(2, 3, 16, 16)
    expected = g.net((x - torch.tensor(resolved.mean).view(3, 1, 1)) / 0.2)
    assert torch.allclose(g(x), expected, atol=1e-5)


@pytest.mark.usefixtures("load")
def test_it_is_listed_frozen_and_started_from_a_file(tmp_path: Path) -> None:
    assert backbones("tiny") == ["tiny"]
    net = build_featurizer("tiny", (3, 16, 16))
    assert net.out_features == 8
    torch.save(net.net.state_dict(), tmp_path / "weights.pt")
    again = build_featurizer("tiny_net:make", (3, 16, 16), weights=str(tmp_path / "weights.pt"), freeze=1)
    assert torch.equal(again.net[0].weight, net.net[0].weight)
    assert [p.requires_grad for p in again.parameters()] == [False] * 4 + [True] * 4
    weighted = RunSpec(
        algorithm="erm", **{**QUICK, "backbone": "tiny_net:make", "weights": str(tmp_path / "weights.pt")}
    )
    resolved = resolve(weighted, DATA)
    assert (resolved.backbone, resolved.mean) == ("tiny_net:make", (0.5, 0.4, 0.3))
    assert resolved.weights_digest


def test_a_model_names_the_plug_in_that_it_needs(load: Load, tmp_path: Path) -> None:
    options = {name: value for name, value in QUICK.items() if name != "dataset"}
    model = fit(DATA, tmp_path / "model", algorithm="erm", estimated=False, device="cpu", progress=False, **options)
    expected = model.predict(IMAGES[:3]).probabilities
    assert np.array_equal(load_model(tmp_path / "model").predict(IMAGES[:3]).probabilities, expected)
    export_model(model, tmp_path / "model.pt2", "pt2")  # runs the file, and compares
    load(NET.replace(".relu()", ".tanh()"))
    with pytest.warns(UserWarning, match="'tiny' has changed"):
        load_model(tmp_path / "model")
    forget()
    with pytest.raises(UserError, match=r"'tiny' of a plug-in.*--plugin FILE"):
        load_model(tmp_path / "model")


@pytest.mark.usefixtures("load")
def test_a_model_with_it_is_exported_to_onnx(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = {name: value for name, value in QUICK.items() if name != "dataset"}
    model = fit(DATA, tmp_path / "model", algorithm="erm", estimated=False, device="cpu", progress=False, **options)
    session = onnxruntime.InferenceSession(str(export_model(model, tmp_path / "model.onnx")))
    found = session.run(["probabilities"], {"x": IMAGES[:3]})[0]
    np.testing.assert_allclose(found, model.predict(IMAGES[:3]).probabilities, atol=1e-5)


def test_a_network_of_signals_needs_no_images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "_REGISTRY", {})

    @register_backbone("wide")
    class Wide(nn.Module):
        def __init__(self, input_shape: tuple[int, ...], pretrained: bool = False) -> None:
            super().__init__()
            self.layer = nn.Linear(input_shape[0], 6)
            nn.init.constant_(self.layer.bias, 1.0 if pretrained else 0.0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.layer(x))

    data = from_arrays(RNG.normal(size=(36, 5)), np.arange(36) % 2, np.arange(36) // 12, name="scans")
    how = {**QUICK, "backbone": "wide", "pretrained": True}
    record = train(RunSpec(algorithm="coral", test_domains="2", **how), tmp_path, dataset=data, progress=False)
    assert record.status == "done"
    assert build_featurizer("wide", (5,), pretrained=True).net.layer.bias.tolist() == [1.0] * 6


def unpooled(input_shape: tuple[int, ...]) -> nn.Module:
    return nn.Conv2d(input_shape[0], 4, 3)


def failing(input_shape: tuple[int, ...]) -> nn.Module:
    raise ValueError(f"no network\nfor {input_shape}")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("no_such_package.nets:make", "no_such_package"),
        ("fgmix.networks:make_nothing", "make_nothing"),
        (f"{__name__}:unpooled", r"codes \(n, d\)"),
        (f"{__name__}:failing", "no network for"),
        ("no_such_net", "no_such_net"),
    ],
)
def test_a_backbone_that_cannot_be_built_is_one_sentence(name: str, found: str) -> None:
    with pytest.raises(UserError, match=found) as caught:
        build_featurizer(name, (3, 16, 16))
    assert "\n" not in str(caught.value)


def test_preprocessing_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTRY", {})
    for name, how in (("a.b", {}), ("mine", {"mean": (0.5,)}), ("mine", {"mean": (0.5,), "std": (0.0,)})):
        with pytest.raises(UserError):
            register_backbone(name, **how)
    with pytest.raises(UserError, match="registered already"):
        register_backbone("small_cnn")(unpooled)
    register_backbone("mine")(unpooled)
    with pytest.raises(UserError, match="--pretrained"):
        build_featurizer("mine", (3, 16, 16), pretrained=True)
