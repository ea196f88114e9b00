"""Stages and residual blocks against what really happens when their maps are changed."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn

from fgmix import algorithms
from fgmix.algorithms.cnsn import add_selfnorm
from fgmix.errors import UserError
from fgmix.networks import Featurizer, build_featurizer, residual_blocks, stages
from fgmix.networks.names import load_timm
from fgmix.networks.parts import change_maps
from fgmix.networks.stages import Stage, sections
from networks import families

ROWS = {row.family: row for row in families.rows()}
QUICK = [  # one of every kind of network
    *("resnet", "resnetv2", "regnet", "convnext", "cspnet", "densenet", "dpn", "hgnet", "hrnet", "mambaout"),
    *("mobilevit", "pvt_v2", "swin_transformer", "twins", "mvitv2", "xcit", "vision_transformer"),
]


def assert_stages_hold_all_that_follows(featurizer: Featurizer, places: list[Stage]) -> None:
    """At every stage: with the maps of other images in place of its own, the network gives the codes of the others."""
    ours, others = torch.randn(2, 2, *featurizer.input_shape).double()
    maps: list[Tensor] = []

    def record(h: Tensor) -> Tensor:
        maps.append(h.clone())
        return h

    with torch.no_grad():
        z = featurizer(ours)
        with change_maps(featurizer, [place.end for place in places], record):
            expected = featurizer(others)
        assert [h.shape[1] for h in maps] == [place.end.channels for place in places]
        for place, theirs in zip(places, maps, strict=True):
            with change_maps(featurizer, [place.end], theirs.view_as):
                replaced = featurizer(ours)
            assert (replaced - expected).abs().max() < 1e-6 * (expected - z).abs().max()


def assert_every_block_passes_its_gate(featurizer: Featurizer) -> None:
    """SelfNorm with open gates changes nothing, and runs once behind every block, on as many channels as it has."""
    x, seen = torch.randn(2, *featurizer.input_shape).double(), []
    with torch.no_grad():
        z = featurizer(x)
        blocks = add_selfnorm(featurizer, bias=100.0)
        for block in blocks:
            layer = featurizer.get_submodule(f"{block.name}.selfnorm").double()
            layer.register_forward_hook(lambda layer, _i, h: seen.append((layer, h.shape[1])))
        torch.testing.assert_close(featurizer(x), z)
    assert sorted(channels for _, channels in seen) == sorted(block.channels for block in blocks)
    assert len({layer for layer, _ in seen}) == len(blocks)


def check(row: families.Row) -> None:
    px = int(row.px)
    featurizer = families.build(row.model, px)
    parts = families.find_parts(featurizer)
    assert families.describe(row.family, row.model, px, parts) == row
    featurizer.double()
    with torch.no_grad():
        assert featurizer(torch.zeros(2, 3, px, px).double()).shape == (2, featurizer.out_features)
    if not isinstance(parts.stages, UserError):
        assert_stages_hold_all_that_follows(featurizer, parts.stages)
    if not isinstance(parts.blocks, UserError):
        assert_every_block_passes_its_gate(featurizer)


@pytest.mark.parametrize("family", QUICK)
def test_timm(family: str) -> None:
    check(ROWS[family])


@pytest.mark.long
@pytest.mark.parametrize("family", [family for family in ROWS if family not in QUICK])
def test_every_other_family_of_timm(family: str) -> None:
    check(ROWS[family])


@pytest.mark.long
def test_the_page_has_every_family_of_timm_but_the_large_ones() -> None:
    assert [f for f in load_timm().list_modules() if f not in ROWS] == ["deepseek_vit", "gemma4_vit"]


@pytest.mark.parametrize(
    ("name", "ends", "n_blocks"),
    [
        ("small_cnn", ["layer1", "layer2", "layer3"], 3),
        ("resnet18", ["layer1", "layer2", "layer3", "layer4"], 8),
        ("resnet26d", ["layer1", "layer2", "layer3", "layer4"], 8),
        ("tf_efficientnet_lite0", ["blocks.1", "blocks.2", "blocks.4", "blocks"], 9),
    ],
)
@pytest.mark.parametrize("px", [16, 96])
def test_the_images_size_does_not_matter(name: str, ends: list[str], n_blocks: int, px: int) -> None:
    """At 16 pixels the last stages of a ResNet all work on single pixels, and are stages all the same."""
    featurizer = build_featurizer(name, (3, px, px))
    assert [stage.end.name for stage in stages(featurizer)] == [f"net.{end}" for end in ends]
    assert len(residual_blocks(featurizer)) == n_blocks


def test_stages_begin_where_maps_shrink() -> None:
    featurizer = build_featurizer("tf_efficientnet_lite0", (3, 64, 64))
    assert [stage.entry for stage in stages(featurizer)] == [f"net.blocks.{i}" for i in (1, 2, 3, 5)]


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("mlp", (3, 8, 8), "MLP, which has no feature maps"),
        ("mnist_cnn", (3, 28, 28), "MnistCNN, which has no stages"),
        ("test_vit", (3, 64, 64), "VisionTransformer, whose blocks put out tokens"),
        ("twins_svt_small", (3, 64, 64), "Twins, whose blocks put out tokens"),
    ],
)
def test_networks_without_stages_are_refused(name: str, shape: tuple[int, ...], reason: str) -> None:
    featurizer = build_featurizer(name, shape)
    with pytest.raises(UserError, match=f"^Expected a convolutional network, .*Found {reason}.*Use a backbone such as"):
        stages(featurizer)
    with pytest.raises(UserError, match="on whose residual blocks this method works"):
        residual_blocks(featurizer)


@pytest.mark.parametrize(("name", "shape"), [("mlp", (7,)), ("signal_cnn", (2, 64))])
def test_features_and_signals_have_no_stages(name: str, shape: tuple[int, ...]) -> None:
    featurizer = build_featurizer(name, shape)
    with pytest.raises(UserError, match=f"^Expected images, .*stages.*Found samples of shape {re.escape(str(shape))}"):
        stages(featurizer)
    assert sections(featurizer) == []


def test_a_network_that_does_not_run_is_refused() -> None:
    with pytest.raises(UserError, match=r"runs on images of shape \(3, 64, 64\).*Found ByobNet, which does not"):
        stages(build_featurizer("halonet_h1", (3, 64, 64)))  # its windows need 256 pixels


def test_methods_refuse_what_they_would_not_change() -> None:
    """Twins' blocks stand in lists that never run as modules: MixStyle there was ERM, to the last digit."""
    featurizer = build_featurizer("twins_svt_small", (3, 64, 64))
    for name in ("mixstyle", "cnsn"):
        with pytest.raises(UserError, match="Found Twins"):
            algorithms.create(name, featurizer=featurizer, classifier=nn.Linear(512, 2), n_domains=1)
    with pytest.raises(UserError, match="`first_stages` should be at most 3, the stages of this network"):
        algorithms.create(
            "mixstyle",
            featurizer=build_featurizer("small_cnn", (3, 16, 16)),
            classifier=nn.Linear(96, 2),
            n_domains=1,
            first_stages=4,
        )


class Residual(nn.Module):
    """x + conv(x), on either layout; it counts its calls, draws random numbers, and does so in evaluation mode too."""

    calls: Tensor

    def __init__(self, channels: int, channels_last: bool = False) -> None:
        super().__init__()
        self.conv, self.channels_last = nn.Conv2d(channels, channels, 3, padding=1), channels_last
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        torch.rand(1)
        if self.channels_last:
            return x + self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return x + self.conv(x)


class Net(nn.Module):
    """Two stages of one block each, and ways of going past them."""

    def __init__(self, past: str = "") -> None:
        super().__init__()
        self.past = past
        self.stem, self.layer1 = nn.Conv2d(3, 4, 3, 2, 1), Residual(4)
        self.down, self.layer2 = nn.Conv2d(4, 8, 3, 2, 1), Residual(8)
        self.unused = nn.Sequential(Residual(8))

    def forward(self, x: Tensor) -> Tensor:
        h1 = self.layer1(self.stem(x))
        h2 = self.layer2(self.down(h1))
        if self.past == "first":  # the code sees the first stage past the second
            return torch.cat([h2.mean((2, 3)), h1.mean((2, 3))], 1)
        if self.past == "both":  # the code sees the image past both
            return torch.cat([h2.mean((2, 3)), x.mean((2, 3))], 1)
        if self.past == "twice":
            h2 = self.layer2(h2)
        return h2.mean((2, 3))


def names(featurizer: nn.Module) -> list[str]:
    return [stage.end.name for stage in stages(featurizer)]


def test_a_stage_holds_all_that_follows() -> None:
    assert names(Net()) == ["layer1", "layer2"]
    assert names(Net("first")) == ["layer1"]
    with pytest.raises(UserError, match="Found Net, whose blocks put out tokens or several maps"):
        names(Net("both"))


def test_a_module_that_runs_twice_is_no_place_for_a_hook() -> None:
    assert names(Net("twice")) == ["layer1"]
    with pytest.raises(UserError, match="residual blocks"):
        residual_blocks(Net("twice"))


def test_modules_that_do_not_run_are_not_found() -> None:
    assert [block.name for block in residual_blocks(Net())] == ["layer1", "layer2"]


def test_looking_changes_nothing() -> None:
    net = Net()
    net.layer1.eval()
    for parameter in net.stem.parameters():
        parameter.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    modes, random = [module.training for module in net.modules()], torch.get_rng_state()
    with torch.no_grad():
        assert len(stages(net)) == len(residual_blocks(net)) == 2
    torch.testing.assert_close(net.state_dict(), before, rtol=0, atol=0)
    assert [module.training for module in net.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
    assert all(parameter.grad is None for parameter in net.parameters())


class Last(nn.Module):
    """Channels last: a stage of 16 × 16 × 16 numbers, whose shape leaves the layout open, then one of 8 × 8 × 24."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.layer1 = nn.Conv2d(3, 16, 4, 4), Residual(16, channels_last=True)
        self.down, self.layer2 = nn.Linear(64, 24), Residual(24, channels_last=True)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer1(self.stem(x).permute(0, 2, 3, 1))
        n, height, width, _ = h.shape
        h = h.view(n, height // 2, 2, width // 2, 2, 16).transpose(2, 3).reshape(n, height // 2, width // 2, 64)
        return self.layer2(self.down(h)).mean((1, 2))


def test_an_open_layout_is_that_of_the_other_blocks() -> None:
    assert [(block.channels, block.channels_last) for block in residual_blocks(Last())] == [(16, True), (24, True)]
    assert [stage.end.size for stage in stages(Last())] == [(16, 16), (8, 8)]
