"""Convolutional networks of our own.

`SmallCNN` is sized for a CPU: about 10 MFLOP per 32×32 image, tens of milliseconds per step of 96 images.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu


class ResidualBlock(nn.Module):
    """conv → norm → ReLU → conv → norm, added to the input or a strided 1×1 convolution of it, then ReLU.

    Group normalisation has no running statistics, so that averaged weights need no second pass over the data, and codes
    do not depend on the other samples of a batch.
    """

    def __init__(self, c_in: int, c_out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(8, c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(8, c_out)
        same = c_in == c_out and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(c_in, c_out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)))))
        return relu(h + self.shortcut(x))


class SmallCNN(nn.Module):
    """Stem (stride 2) and three residual stages, average-pooled to codes of `out_features` = 96."""

    out_features = 96

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, 16, 3, 2, 1, bias=False), nn.GroupNorm(8, 16), nn.ReLU())
        self.layer1 = nn.Sequential(ResidualBlock(16, 16))
        self.layer2 = nn.Sequential(ResidualBlock(16, 48, stride=2))
        self.layer3 = nn.Sequential(ResidualBlock(48, self.out_features, stride=2))

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer3(self.layer2(self.layer1(self.stem(x))))
        z: Tensor = h.mean((2, 3))
        return z


class MnistCNN(nn.Module):
    """Four 3×3 convolutions, each conv → ReLU → GroupNorm(8), then global average pooling to 128 features.

    DomainBed's network for 28-pixel digits, which takes half a second per step on two cores.
    Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", 2021, https://arxiv.org/abs/2007.01434.
    """

    out_features = 128

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        widths, strides = (channels, 64, 128, 128, 128), (1, 2, 1, 1)
        self.convs = nn.ModuleList(
            nn.Conv2d(c_in, c_out, 3, stride, padding=1) for c_in, c_out, stride in zip(widths, widths[1:], strides)
        )
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for width in widths[1:])

    def forward(self, x: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms):
            x = norm(relu(conv(x)))
        return x.mean((2, 3))
