"""3×3 convolutions over maps of a few positions as one matrix product, for training on CPUs.

The last stage of a ResNet sees 2×2 positions of 512 channels when images have 64 pixels. There a convolution spends
most of its time on rearranging its 9 MB of weights, forwards and backwards, however small the batch. As a matrix
product of patches and weights, which channels-last memory holds in the product's own order, nothing is rearranged:

    y[n, p] = W · patch(x, n, p),    patch ∈ R^{9c} at position p

Measured on two cores, forward and backward of 512 → 512 channels on 2×2: batch 32: 65 → 26 ms; batch 96: 113 → 64 ms.
On 4×4 positions of 256 channels it is slower (44 → 58 ms), hence the bound.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

POSITIONS = 4  # of the output, at most


class TinyMapConv2d(nn.Conv2d):
    """A convolution that becomes a matrix product where that is faster; the same numbers up to rounding.

    Only while gradients are taken on a CPU: evaluation and export see a plain convolution.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not (torch.is_grad_enabled() and x.device.type == "cpu" and self._positions(x) <= POSITIONS):
            return super().forward(x)
        return patch_product(x, self.weight, self.stride[0])

    def _positions(self, x: Tensor) -> int:
        height, width = (-(-side // self.stride[0]) for side in x.shape[-2:])
        return height * width


def patch_product(x: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
    """A 3×3 convolution, padded by 1, as a product of patches and weights.

    Args:
        x: (n, c, h, w).
        weight: (o, c, 3, 3), fastest in channels-last memory.
        stride: of the convolution.

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


def use_tiny_maps(net: nn.Module) -> None:
    """Turn every plain 3×3 convolution of a network into a `TinyMapConv2d`; weights and names stay."""
    for module in net.modules():
        if type(module) is nn.Conv2d and _is_plain(module):
            module.__class__ = TinyMapConv2d  # the same module with another forward: its weights and hooks stay


def _is_plain(conv: nn.Conv2d) -> bool:
    return (
        conv.kernel_size == (3, 3)
        and conv.padding == (1, 1)
        and conv.padding_mode == "zeros"
        and conv.dilation == (1, 1)
        and conv.stride in ((1, 1), (2, 2))
        and conv.groups == 1
        and conv.bias is None
    )
