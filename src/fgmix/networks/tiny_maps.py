"""Convolutions over maps of a few positions as matrix products, for training on CPUs.

For images of 64 pixels, the last stage of a ResNet has maps of 2×2 positions and 512 channels. There a convolution
spends most of its time on reordering its 9 MB of weights, forwards and backwards, however small the batch. A matrix
product of patches and weights needs no reordering, because channels-last memory already has the order of the product:

    y[n, p] = W · patch(x, n, p),    patch ∈ R^{9c} at position p

Measured on two cores, forward and backward of 512 → 512 channels on 2×2: batch 32: 65 → 26 ms; batch 96: 113 → 64 ms.
On 4×4 positions of 256 channels it is slower (44 → 58 ms), hence the bound.

The last stages of an EfficientNet have depthwise 5×5 convolutions there, whose gradients take most of a training step.
If the filter is at least as wide as the map, (nearly) every pair of positions is connected, and the convolution of a
channel is a small dense matrix over positions:

    y[n, q, c] = Σ_p x[n, p, c] M[p, q, c],    M[p, q, c] = filter_c[p − q]

Measured on one core, forward and backward, batch 96: 5×5 on 2×2 of 1,152 channels 76 → 7 ms; on 4×4 of 672 channels
94 → 24 ms; a whole step of EfficientNet-Lite0 at 64 px 1.08 → 0.64 s. With 3×3 filters on 4×4 positions it is slower.
The gain depends on the processor: on an AMD EPYC with torch 2.13 the whole step takes 0.63 s either way.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

POSITIONS = 4  # of the output, at most


class _Replacement(nn.Conv2d):
    """A convolution with the weights and settings of `conv`, in its place."""

    def __init__(self, conv: nn.Conv2d) -> None:
        sizes = (conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding)
        super().__init__(*sizes, groups=conv.groups, bias=False, device="meta")  # type: ignore[arg-type] # their types are wider
        self.weight = conv.weight
        self.training = conv.training


class TinyMapConv2d(_Replacement):
    """A 3×3 convolution that is computed as a matrix product where that is faster; the same results up to rounding.

    Only on a CPU with gradients enabled: evaluation and export use a plain convolution.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not (torch.is_grad_enabled() and x.device.type == "cpu" and self._positions(x) <= POSITIONS):
            return super().forward(x)
        return patch_product(x, self.weight, self.stride[0])

    def _positions(self, x: Tensor) -> int:
        height, width = (-(-side // self.stride[0]) for side in x.shape[-2:])
        return height * width


def patch_product(x: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
    """Compute a 3×3 convolution, padded by 1, as a product of patches and weights.

    Args:
        x: (n, c, h, w).
        weight: (o, c, 3, 3), fastest in channels-last memory.
        stride: stride of the convolution.

    Example:
        >>> patch_product(torch.ones(1, 2, 2, 2), torch.ones(5, 2, 3, 3)).shape
        torch.Size([1, 5, 2, 2])
    """
    padded = pad(x.permute(0, 2, 3, 1), (0, 0, 1, 1, 1, 1))
    patches = padded.unfold(1, 3, stride).unfold(2, 3, stride)  # (n, h', w', c, 3, 3)
    n, h, w = patches.shape[:3]
    rows = patches.permute(0, 1, 2, 4, 5, 3).reshape(n * h * w, -1)  # (n h' w', 9c)
    y = rows @ weight.permute(0, 2, 3, 1).reshape(len(weight), -1).T
    return y.view(n, h, w, -1).permute(0, 3, 1, 2)


class TinyMapDepthwiseConv2d(_Replacement):
    """A depthwise convolution that is computed as dense products if the map is no wider than the filter.

    Only on a CPU with gradients enabled, like `TinyMapConv2d`.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not (torch.is_grad_enabled() and x.device.type == "cpu" and max(x.shape[-2:]) <= self.kernel_size[0]):
            return super().forward(x)
        return dense_depthwise(x, self.weight)


def dense_depthwise(x: Tensor, weight: Tensor) -> Tensor:
    """Compute a depthwise convolution, padded to keep the size, as dense products over positions.

    Args:
        x: (n, c, h, w).
        weight: (c, 1, k, k) with k odd.

    Example:
        >>> dense_depthwise(torch.ones(1, 3, 2, 2), torch.ones(3, 1, 5, 5))[0, 0]
        tensor([[4., 4.],
                [4., 4.]])
    """
    n, c, h, w = x.shape
    m = pad(weight.reshape(c, -1), (0, 1))[:, _offsets(h, w, weight.shape[-1])]  # (c, p, q)
    if h * w <= POSITIONS:  # 4 × 4 matrices are too small for `bmm`, which takes 22 ms instead of 7 ms
        positions = x.permute(0, 2, 3, 1).reshape(n, h * w, c)
        y = torch.stack([positions[:, p, None] * m[:, p].T for p in range(h * w)]).sum(0)
    else:
        y = torch.bmm(x.permute(1, 0, 2, 3).reshape(c, n, h * w), m)
        if y.requires_grad:  # its gradient arrives permuted, for which `bmm` works channel by channel
            y.register_hook(Tensor.contiguous)  # 672 channels, forward and backward: 33 → 19 ms, bit-identical
        y = y.permute(1, 2, 0).contiguous()
    return y.view(n, h, w, c).permute(0, 3, 1, 2)  # channels-last in memory, as the layers that follow expect it


@lru_cache
def _offsets(h: int, w: int, k: int) -> Tensor:
    """Return the index of the filter weight (of k²) that connects positions p and q, (p, q); k² if none does."""
    rows, columns = (torch.arange(side)[:, None] - torch.arange(side) + k // 2 for side in (h, w))
    u, v = rows[:, None, :, None], columns[None, :, None, :]  # of p = (i, j) and q = (a, b): dimensions i, j, a, b
    reached = (u >= 0) & (u < k) & (v >= 0) & (v < k)
    return torch.where(reached, u * k + v, k * k).reshape(h * w, h * w)


def use_tiny_maps(net: nn.Module) -> None:
    """Replace every plain 3×3 convolution in a network by a `TinyMapConv2d`, and every plain depthwise convolution of
    stride 1 by a `TinyMapDepthwiseConv2d`; weights and names do not change."""
    for parent in list(net.modules()):
        for name, conv in parent.named_children():
            if type(conv) is nn.Conv2d and _is_plain(conv):
                if conv.groups == 1 and conv.kernel_size == (3, 3):
                    setattr(parent, name, TinyMapConv2d(conv))
                elif conv.groups == conv.in_channels == conv.out_channels and conv.stride == (1, 1):
                    setattr(parent, name, TinyMapDepthwiseConv2d(conv))


def _is_plain(conv: nn.Conv2d) -> bool:
    """Whether it has an odd, square kernel, zero padding that keeps the size at stride 1, no dilation and no bias."""
    k, width = conv.kernel_size
    return (
        k == width
        and k % 2 == 1
        and conv.padding == (k // 2, k // 2)
        and conv.padding_mode == "zeros"
        and conv.dilation == (1, 1)
        and conv.stride in ((1, 1), (2, 2))
        and conv.bias is None
    )
