"""The range of pixels, and the channels of a network's images."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fgmix.errors import UserError
from fgmix.networks import build_featurizer
from fgmix.networks.generators import PixelRange, image_channels


def test_extremes_of_each_channel_become_plus_and_minus_one() -> None:
    """ImageNet's normalisation of [0, 1]: channels of different offsets and spans, one unit range."""
    mean, std = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    x = torch.rand(4, 3, 8, 8)
    x[0, :, 0, 0], x[1, :, 0, 0] = 0, 1
    scale = PixelRange(3)
    scale.observe((x - mean) / std)
    torch.testing.assert_close(scale.to_unit((x - mean) / std), 2 * x - 1)
    torch.testing.assert_close(scale.from_unit(2 * x - 1), (x - mean) / std)


def test_range_only_widens() -> None:
    scale = PixelRange(1)
    for low, high in [(0.0, 1.0), (0.4, 0.6), (-1.0, 0.5)]:
        scale.observe(torch.tensor([low, high]).view(1, 1, 1, 2))
    assert (scale.lo.item(), scale.hi.item()) == (-1.0, 1.0)


def test_a_constant_channel_stays_finite() -> None:
    scale, x = PixelRange(1), torch.full((2, 1, 4, 4), 3.0)
    scale.observe(x)
    torch.testing.assert_close(scale.from_unit(scale.to_unit(x)), x)


@pytest.mark.parametrize(("name", "channels"), [("small_cnn", 3), ("mnist_cnn", 2)])
def test_channels_are_read_off_the_first_convolution(name: str, channels: int) -> None:
    assert image_channels(build_featurizer(name, (channels, 28, 28))) == channels


def test_a_network_without_convolutions_is_refused() -> None:
    with pytest.raises(UserError, match=r"convolutional.*MLP"):
        image_channels(build_featurizer("mlp", (6,)))
    with pytest.raises(UserError, match=r"convolutional.*Flatten"):
        image_channels(nn.Flatten())
