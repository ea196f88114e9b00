"""The StarGAN-like generator: sizes, range, and how a label can act at all."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fgmix.networks.generators import Generator, instance_norm


@pytest.mark.parametrize("size", [(16, 16), (28, 28), (17, 30), (64, 64)])
def test_images_keep_their_size_and_stay_in_the_unit_range(size: tuple[int, int]) -> None:
    G = Generator(3, n_labels=4, width=4)
    out = G(torch.randn(2, 3, *size), torch.tensor([0, 3]))
    assert out.shape == (2, 3, *size)
    assert out.abs().max() < 1


def test_labels_act_and_only_through_the_zero_border() -> None:
    """Reflected, a tiled label is one offset for a whole channel, which instance normalisation removes."""
    G, x = Generator(3, n_labels=4, width=4), torch.randn(1, 3, 16, 16)
    one, two = G(x, torch.tensor([0])), G(x, torch.tensor([3]))
    assert (one - two).abs().max() > 1e-3
    reflected = nn.Conv2d(7, 4, 7, 1, 3, bias=False, padding_mode="reflect")
    reflected.weight = G.first.weight
    G.first = reflected
    torch.testing.assert_close(G(x, torch.tensor([0])), G(x, torch.tensor([3])), atol=1e-5, rtol=0)


def test_instance_norm_is_torchs() -> None:
    x = torch.randn(3, 5, 4, 4) * 3 + 1
    torch.testing.assert_close(instance_norm(5)(x), nn.InstanceNorm2d(5)(x))


def test_samples_do_not_mix() -> None:
    G, x, label = Generator(3, n_labels=2, width=4), torch.randn(3, 3, 16, 16), torch.tensor([0, 1, 1])
    torch.testing.assert_close(G(x, label)[1:2], G(x[1:2], label[1:2]), atol=1e-5, rtol=0)
