"""Heat maps on the card: against the formula by autograd, and where the evidence is known."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from deploy.made import QUICK, striped_folder, vectors
from fgmix import fit, load_model
from fgmix.deploy.heatmaps import _find_last_map, compute_heat, draw_beside
from fgmix.deploy.model import Model
from fgmix.deploy.network import Network
from fgmix.deploy.recipes import find
from fgmix.errors import UserError

pytest.importorskip("captum")


def test_heat_is_that_of_the_formula(image_model: Model) -> None:
    x, labels = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0)), np.array([0, 2, 1])
    heat = compute_heat(image_model, x, labels)
    maps: list[torch.Tensor] = []
    network = image_model.network
    with _find_last_map(network).register_forward_hook(lambda _module, _inputs, a: maps.append(a)):  # type: ignore[arg-type]
        logits, _ = network.logits_and_novelty(x.requires_grad_())  # type: ignore[operator]
    for i, label in enumerate(labels):
        (gradient,) = torch.autograd.grad(logits[i, label], maps[0], retain_graph=True)
        naive = (gradient[i].mean((1, 2))[:, None, None] * maps[0][i]).sum(0).relu()
        large = torch.nn.functional.interpolate(naive[None, None], (16, 16), mode="bilinear")[0, 0].detach().numpy()
        np.testing.assert_allclose(heat[i], large / max(large.max(), 1e-12), atol=1e-5)


def test_an_image_is_shown_beside_its_heat() -> None:
    pixels = np.full((20, 30, 3), 200, np.uint8)
    heat = np.zeros((8, 8), np.float32)
    heat[:4] = 1
    pair = np.asarray(draw_beside(pixels, heat)).astype(int)
    assert pair.shape == (20, 60, 3)
    assert (pair[:, :30] == 200).all()
    assert pair[2, 45].sum() > pair[18, 45].sum() + 100


def test_the_card_shows_what_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path / "cache"))
    pictures = striped_folder(tmp_path / "stripes")
    network = {"backbone": "small_cnn", "pretrained": False, "image_size": 16, "batch_size": 4}
    model = fit(pictures, tmp_path / "model", **{**QUICK, **network, "steps": 2, "estimated": False, "heatmaps": 5})
    assert [each.domain for each in model.info.heatmaps] == ["dark", "dark", "plain", "plain", "wide"]
    card = (tmp_path / "model" / "card.md").read_text()
    for each in load_model(tmp_path / "model").info.heatmaps:
        assert f"({each.file})" in card
        with Image.open(tmp_path / "model" / each.file) as image:
            assert image.width > image.height


def test_a_network_with_trees_has_no_heat(image_model: Model) -> None:
    x, y = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32), np.arange(20) % 2
    trees = find("forest").train(x, y, None, 2)
    assert isinstance(image_model.network, Network)
    network = copy.deepcopy(image_model.network)
    network.classifier = trees
    with pytest.raises(UserError, match="trees"):
        compute_heat(replace(image_model, network=network), torch.zeros(1, 3, 8, 8), np.zeros(1, np.int64))


def test_heat_maps_of_what_has_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--heatmaps"):
        fit(vectors(), tmp_path / "model", **{**QUICK, "heatmaps": 3})
