"""Networks of our own, sized for a CPU: for features, for signals (channels, time) and for small images."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

WIDTH = 7  # of every kernel over time, in samples


class MLP(nn.Module):
    """Linear → ReLU → Linear → ReLU on flattened inputs.

    DomainBed's featurizer for vectors has a third linear layer without an activation (`third`): its codes have both
    signs.
    """

    def __init__(self, in_features: int, out_features: int = 256, *, third: bool = False) -> None:
        super().__init__()
        self.out_features = out_features
        self.net = nn.Sequential(
            nn.Flatten(),
            nn.Linear(in_features, out_features),
            nn.ReLU(),
            nn.Linear(out_features, out_features),
            nn.ReLU(),
            *([nn.Linear(out_features, out_features)] if third else []),
        )

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.net(x)
        return z


class Identity(nn.Module):
    """z = x, flattened: the features are the code, and only the classifier is trained."""

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.out_features = in_features

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


def build_discriminator(
    in_features: int, out_features: int, width: int = 256, depth: int = 3, dropout: float = 0.0
) -> nn.Module:
    """Build DomainBed's MLP: `depth` linear layers, with dropout and ReLU after each but the last.

    `depth` is at least 2.

    >>> [layer for layer in build_discriminator(4, 3, width=8, depth=2)]
    [Linear(in_features=4, out_features=8, bias=True), ReLU(), Linear(in_features=8, out_features=3, bias=True)]
    """
    sizes = [in_features, *[width] * (depth - 1)]
    layers: list[nn.Module] = []
    for size in sizes[:-1]:
        layers += [nn.Linear(size, width), *([nn.Dropout(dropout)] if dropout else []), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, out_features))


class ResidualBlock(nn.Module):
    """conv → norm → ReLU → conv → norm, added to the input or a strided 1-wide convolution of it, then ReLU.

    Group normalisation has no running statistics, so that averaged weights need no second pass over the data, and codes
    do not depend on the other samples of a batch. Convolutions are over pixels or, with another class, over time.
    """

    def __init__(
        self, c_in: int, c_out: int, stride: int = 1, conv: type[nn.Module] = nn.Conv2d, width: int = 3
    ) -> None:
        super().__init__()
        self.conv1 = conv(c_in, c_out, width, stride, width // 2, bias=False)
        self.norm1 = nn.GroupNorm(8, c_out)
        self.conv2 = conv(c_out, c_out, width, 1, width // 2, bias=False)
        self.norm2 = nn.GroupNorm(8, c_out)
        same = c_in == c_out and stride == 1
        self.shortcut = nn.Identity() if same else conv(c_in, c_out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)), inplace=True)))  # new pages cost more than the ReLU
        return relu(h + self.shortcut(x), inplace=True)


class SmallCNN(nn.Module):
    """Stem (stride 2) and three residual stages, average-pooled to codes of `out_features` = 96.

    About 10 MFLOP per image of 32×32 pixels: tens of milliseconds per step of 96 images on a CPU.
    """

    out_features = 96

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        stem = nn.Conv2d(channels, 16, 3, 2, 1, bias=False)
        self.stem = nn.Sequential(stem, nn.GroupNorm(8, 16), nn.ReLU(inplace=True))
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
            x = norm(relu(conv(x), inplace=True))
        return x.mean((2, 3))


class SignalCNN(nn.Module):
    """Stem and three residual stages, each of stride 2, average-pooled over time to codes of `out_features` = 96.

    The last maps see about 260 samples of the signal. Signals of any length pass; all of a dataset have the same.
    """

    out_features = 96

    def __init__(self, channels: int) -> None:
        super().__init__()
        stem = nn.Conv1d(channels, 32, WIDTH, stride=2, padding=WIDTH // 2, bias=False)
        self.stem = nn.Sequential(stem, nn.GroupNorm(8, 32), nn.ReLU())
        self.layer1 = ResidualBlock(32, 32, 2, nn.Conv1d, WIDTH)
        self.layer2 = ResidualBlock(32, 64, 2, nn.Conv1d, WIDTH)
        self.layer3 = ResidualBlock(64, self.out_features, 2, nn.Conv1d, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer3(self.layer2(self.layer1(self.stem(x))))
        z: Tensor = h.mean(2)
        return z
