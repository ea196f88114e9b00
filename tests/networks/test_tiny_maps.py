"""Convolutions over few positions: the same function as torch's, and only where it is faster."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d

from fgmix.networks import build_featurizer
from fgmix.networks.tiny_maps import (
    TinyMapConv2d,
    TinyMapDepthwiseConv2d,
    dense_depthwise,
    patch_product,
    use_tiny_maps,
)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("side", [1, 2, 3, 4])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_product_of_patches_is_the_convolution(stride: int, side: int, layout: torch.memory_format) -> None:
    x = torch.randn(3, 5, side, side, dtype=torch.float64).contiguous(memory_format=layout).requires_grad_()
    w = torch.randn(7, 5, 3, 3, dtype=torch.float64).contiguous(memory_format=layout).requires_grad_()
    ours, theirs = patch_product(x, w, stride), conv2d(x, w, stride=stride, padding=1)
    torch.testing.assert_close(ours, theirs)
    g = torch.randn_like(theirs)
    for mine, plain in zip(torch.autograd.grad(ours, (x, w), g), torch.autograd.grad(theirs, (x, w), g)):
        torch.testing.assert_close(mine, plain)


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 2), (2, 3), (4, 4), (6, 5)])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_dense_product_is_the_depthwise_convolution(
    kernel: int, height: int, width: int, layout: torch.memory_format
) -> None:
    x = torch.randn(3, 6, height, width, dtype=torch.float64).contiguous(memory_format=layout).requires_grad_()
    w = torch.randn(6, 1, kernel, kernel, dtype=torch.float64).contiguous(memory_format=layout).requires_grad_()
    ours, theirs = dense_depthwise(x, w), conv2d(x, w, padding=kernel // 2, groups=6)
    torch.testing.assert_close(ours, theirs)
    g = torch.randn_like(theirs)
    for mine, plain in zip(torch.autograd.grad(ours, (x, w), g), torch.autograd.grad(theirs, (x, w), g)):
        torch.testing.assert_close(mine, plain)


def test_weight_gradient_is_laid_out_as_the_weight() -> None:
    conv = nn.Conv2d(4, 6, 3, padding=1, bias=False).to(memory_format=torch.channels_last)
    net = nn.Sequential(conv)
    use_tiny_maps(net)
    net(torch.randn(2, 4, 2, 2)).sum().backward()
    assert net[0] is not conv
    assert net[0].weight is conv.weight
    assert conv.weight.grad is not None
    assert conv.weight.grad.stride() == conv.weight.stride()


@pytest.mark.parametrize(("side", "grad", "product"), [(2, True, True), (3, True, False), (2, False, False)])
def test_only_for_few_positions_with_gradients(
    side: int, grad: bool, product: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(
        "fgmix.networks.tiny_maps.patch_product", lambda x, w, s: calls.append(s) or conv2d(x, w, None, s, 1)
    )
    net = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=False))
    use_tiny_maps(net)
    with torch.set_grad_enabled(grad):
        net(torch.randn(1, 4, side, side))
    assert bool(calls) == product


@pytest.mark.parametrize(
    "options",
    [
        {"groups": 2},
        {"groups": 4, "stride": 2},
        {"dilation": 2, "padding": 1},
        {"padding": 0},
        {"bias": True},
        {"padding_mode": "reflect"},
    ],
)
def test_other_convolutions_stay(options: dict[str, object]) -> None:
    net = nn.Sequential(nn.Conv2d(4, 4, 3, **{"padding": 1, "bias": False, **options}))  # type: ignore[arg-type]
    use_tiny_maps(net)
    assert type(net[0]) is nn.Conv2d


def test_replacing_draws_no_random_numbers() -> None:
    net, state = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=False)), torch.get_rng_state()
    use_tiny_maps(net)
    assert type(net[0]) is TinyMapConv2d
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("name", "kind", "count"),
    [("resnet18", TinyMapConv2d, 16), ("tf_efficientnet_lite0", TinyMapDepthwiseConv2d, 12)],
)
def test_networks_have_them_and_compute_the_same(name: str, kind: type[nn.Conv2d], count: int) -> None:
    """Same weights, same codes and gradients as timm's own, at 64 px where the last stage has 2×2 positions."""
    x = torch.randn(2, 3, 64, 64)
    nets = [build_featurizer(name, (3, 64, 64), freeze_bn=True, channels_last=last) for last in (True, False)]
    nets[1].load_state_dict(nets[0].state_dict())
    assert sum(isinstance(m, kind) for m in nets[0].modules()) == count
    assert not any(isinstance(m, TinyMapConv2d | TinyMapDepthwiseConv2d) for m in nets[1].modules())
    codes = [net.train()(x) for net in nets]
    torch.testing.assert_close(*codes, rtol=1e-4, atol=1e-4)
    grads = [torch.autograd.grad(z.square().mean(), list(net.parameters())) for z, net in zip(codes, nets)]
    for mine, plain in zip(*grads):
        torch.testing.assert_close(mine, plain, rtol=1e-3, atol=1e-4)
