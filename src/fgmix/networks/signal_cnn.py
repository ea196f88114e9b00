"""A convolutional network for signals (channels, time), sized for a CPU."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

WIDTH = 7  # of every kernel, in samples


class SignalBlock(nn.Module):
    """conv → norm → ReLU → conv → norm, added to a strided 1-wide convolution of the input, then ReLU.

    Group normalisation for the reasons of `small_cnn.ResidualBlock`.
    """

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(c_in, c_out, WIDTH, stride=2, padding=WIDTH // 2, bias=False)
        self.norm1 = nn.GroupNorm(8, c_out)
        self.conv2 = nn.Conv1d(c_out, c_out, WIDTH, padding=WIDTH // 2, bias=False)
        self.norm2 = nn.GroupNorm(8, c_out)
        self.shortcut = nn.Conv1d(c_in, c_out, 1, stride=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)))))
        return relu(h + self.shortcut(x))


class SignalCNN(nn.Module):
    """Stem and three residual stages, each of stride 2, average-pooled over time to codes of `out_features` = 96.

    The last maps see about 260 samples of the signal. Signals of any length pass; all of a dataset have the same.
    """

    out_features = 96

    def __init__(self, channels: int) -> None:
        super().__init__()
        stem = nn.Conv1d(channels, 32, WIDTH, stride=2, padding=WIDTH // 2, bias=False)
        self.stem = nn.Sequential(stem, nn.GroupNorm(8, 32), nn.ReLU())
        self.layer1 = SignalBlock(32, 32)
        self.layer2 = SignalBlock(32, 64)
        self.layer3 = SignalBlock(64, self.out_features)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer3(self.layer2(self.layer1(self.stem(x))))
        z: Tensor = h.mean(2)
        return z
