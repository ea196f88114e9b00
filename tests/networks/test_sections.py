"""Sections of networks of every kind, and freezing the first of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fgmix.algorithms import create
from fgmix.errors import UserError
from fgmix.networks import build_featurizer
from fgmix.networks.parts import freeze_sections, record_features
from fgmix.networks.stages import sections

SIZE = (3, 32, 32)


@pytest.mark.parametrize(
    ("backbone", "ends"),
    [
        ("small_cnn", ["net.layer1", "net.layer2", "net.layer3"]),
        ("test_resnet", ["net.layer1", "net.layer2", "net.layer3", "net.layer4"]),
        ("vit_tiny_patch16_224", ["net.blocks.2", "net.blocks.5", "net.blocks.8", "net.blocks.11"]),
        ("mnist_cnn", []),
    ],
)
def test_sections_end_with_stages_or_quarters_of_blocks(backbone: str, ends: list[str]) -> None:
    assert [section.end.name for section in sections(build_featurizer(backbone, SIZE))] == ends


def test_arrays_have_no_sections() -> None:
    assert sections(build_featurizer("mlp", (5,))) == []


def test_what_is_recorded_is_the_stem_s_output_and_each_section_s() -> None:
    network = build_featurizer("vit_tiny_patch16_224", SIZE).eval()
    x = torch.rand(2, *SIZE)
    with record_features(network, sections(network)) as features, torch.no_grad():
        network(x)
        tokens = network.net.norm_pre(network.net.patch_drop(network.net._pos_embed(network.net.patch_embed(x))))
        third = network.net.blocks[2](network.net.blocks[1](network.net.blocks[0](tokens)))
    assert [tuple(feature.shape) for feature in features[:5]] == [(2, 5, 192)] * 5
    torch.testing.assert_close(features[0], tokens)
    torch.testing.assert_close(features[1], third)
    network(x)
    assert len(features) == 7  # two by the blocks called above, none after the block


@pytest.mark.parametrize(
    ("backbone", "count", "trained"),
    [
        ("small_cnn", 1, {"layer2", "layer3"}),
        ("small_cnn", 3, set()),
        ("vit_tiny_patch16_224", 2, {f"blocks.{i}" for i in range(6, 12)} | {"norm"}),
        ("test_resnet", 3, {"layer4"}),
    ],
)
def test_frozen_sections_and_all_before_them_do_not_move(backbone: str, count: int, trained: set[str]) -> None:
    featurizer = build_featurizer(backbone, SIZE, freeze=count)
    algorithm = create("erm", featurizer=featurizer, classifier=nn.Linear(featurizer.out_features, 2), n_domains=1)
    algorithm.train()
    before = {name: value.clone() for name, value in featurizer.net.state_dict().items()}
    algorithm.step([(torch.rand(4, *SIZE), torch.tensor([0, 1, 0, 1]))])
    moved = {name for name, value in featurizer.net.state_dict().items() if not torch.equal(value, before[name])}
    of_blocks = {".".join(name.split(".")[: 2 if name.startswith("blocks") else 1]) for name in moved}
    assert of_blocks == trained


def test_frozen_layers_stay_in_evaluation_mode() -> None:
    featurizer = build_featurizer("test_resnet", SIZE, freeze=2).train()
    layers = dict(featurizer.net.named_children())
    assert {name: layers[name].training for name in ("bn1", "layer1", "layer2", "layer3", "layer4")} == {
        "bn1": False,
        "layer1": False,
        "layer2": False,
        "layer3": True,
        "layer4": True,
    }


@pytest.mark.parametrize(("backbone", "shape", "count", "found"), [("small_cnn", SIZE, 4, 3), ("mlp", (5,), 1, 0)])
def test_more_than_there_are_is_refused(backbone: str, shape: tuple[int, ...], count: int, found: int) -> None:
    with pytest.raises(UserError, match=rf"Expected at most {found} sections.*Found {count}\. Lower --freeze"):
        build_featurizer(backbone, shape, freeze=count)


@pytest.mark.parametrize("method", ["mldg", "pcgrad", "andmask", "fish", "fishr", "metamixup", "sagnet", "sam+coral"])
def test_methods_train_what_is_left(method: str) -> None:
    """Those that take gradients by themselves, by all parameters."""
    featurizer = build_featurizer("small_cnn", (3, 16, 16), freeze=2)
    algorithm = create(method, featurizer=featurizer, classifier=nn.Linear(96, 2), n_domains=3).train()
    before = [p.clone() for p in featurizer.parameters()]
    algorithm.step([(torch.rand(4, 3, 16, 16), torch.tensor([0, 1, 0, 1])) for _ in range(3)])
    for was, p in zip(before, featurizer.parameters()):
        assert p.requires_grad or torch.equal(was, p)


def test_freezing_nothing_changes_nothing() -> None:
    featurizer = build_featurizer("small_cnn", SIZE)
    freeze_sections(featurizer, 0)
    assert all(p.requires_grad for p in featurizer.parameters())
