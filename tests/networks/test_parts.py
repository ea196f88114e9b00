"""A network that starts with one of its stages, against the whole network."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fgmix.errors import UserError
from fgmix.networks import Featurizer, build_featurizer, stages
from fgmix.networks.parts import copy_from, layers_before
from fgmix.networks.small_cnn import ResidualBlock
from fgmix.networks.stages import Stage


def entering(featurizer: Featurizer, stage: Stage, x: Tensor) -> Tensor:
    """The maps that enter a stage."""
    maps: list[Tensor] = []
    with featurizer.get_submodule(stage.entry).register_forward_pre_hook(lambda _m, inputs: maps.append(*inputs)):
        featurizer(x)
    return maps[0]


@pytest.mark.parametrize("name", ["small_cnn", "test_resnet", "test_convnext", "tf_efficientnet_lite0"])
def test_the_rest_of_a_network_gives_its_codes(name: str) -> None:
    featurizer = build_featurizer(name, (3, 32, 32)).eval()
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        for stage in stages(featurizer):
            rest = copy_from(featurizer, stage)
            torch.testing.assert_close(rest(entering(featurizer, stage, x)), featurizer(x))
            assert not {id(p) for p in rest.parameters()} & {id(p) for p in featurizer.parameters()}


def test_modes_and_weights_are_those_of_the_network() -> None:
    featurizer = build_featurizer("test_resnet", (3, 32, 32), freeze_bn=True).train()
    rest = copy_from(featurizer, stages(featurizer)[2])
    assert rest.training
    assert not any(module.training for module in rest.modules() if isinstance(module, nn.BatchNorm2d))
    assert sum(p.numel() for p in rest.parameters()) < sum(p.numel() for p in featurizer.parameters())


def test_layers_before_a_module() -> None:
    featurizer = build_featurizer("tf_efficientnet_lite0", (3, 64, 64))
    names = [name for _, name, _ in layers_before(featurizer, "net.blocks.2")]
    assert names == ["conv_stem", "bn1", "0", "1"]


class Between(nn.Module):
    """Something happens between its layers, which the identity in their places does not undo."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.layer1 = nn.Conv2d(3, 8, 3, 2, 1), ResidualBlock(8, 8)
        self.layer2 = ResidualBlock(8, 16, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.layer2(2 * self.layer1(self.stem(x)) - 1)
        return h.mean((2, 3))


def test_networks_that_cannot_be_split_are_refused() -> None:
    between = Featurizer(Between(), 16)
    with pytest.raises(UserError, match=r"that enter its module `net.layer2`. Found Between, which cannot"):
        copy_from(between, stages(between)[1])
    copy_from(between, stages(between)[0])
    last = build_featurizer("test_mambaout", (3, 64, 64))  # channels last
    with pytest.raises(UserError, match="Found MambaOut, which cannot"):
        copy_from(last, stages(last)[1])
