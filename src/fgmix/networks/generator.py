"""StarGAN's generator, which renders an image in the style of a given domain, sized for a CPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, relu


def instance_norm(channels: int) -> nn.GroupNorm:
    """Build instance normalisation with a scale and a shift per channel.

    Implemented with one group per channel: the same function as `InstanceNorm2d` and several times faster on a CPU
    (24×32×32×32 maps, forward and backward: 1.3 ms instead of 8.7 ms).
    """
    return nn.GroupNorm(channels, channels)


class ResidualBlock(nn.Module):
    """x + IN(conv3(ReLU(IN(conv3(x))))), of the same size and width as x."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm1 = instance_norm(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = instance_norm(channels)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)))))
        return x + h


class Generator(nn.Module):
    """G(x, k): the image x in [−1, 1] rendered in the style of domain k, again in [−1, 1].

        [x; one-hot(k) on every pixel] → conv7 → 2 × conv4 stride 2 → residual blocks
        → 2 × transposed conv4 stride 2 → conv7 → tanh

    Zero padding is essential: inside the image the label adds the same number to every pixel of a channel, which
    instance normalisation removes. Only at the zero-padded border does a label change the mean and standard deviation
    of a channel, and with them the whole image. With reflection padding all labels would give the same image.

    Choi et al., "StarGAN", 2018, https://arxiv.org/abs/1711.09020, with `width` 64 and 6 blocks.

    The first convolution has `width` channels, the next two twice and four times as many; the residual blocks work at a
    quarter of the size.

    >>> G = Generator(3, n_labels=4, width=8)
    >>> G(torch.zeros(2, 3, 16, 16), torch.tensor([0, 3])).shape
    torch.Size([2, 3, 16, 16])
    """

    def __init__(self, channels: int, n_labels: int, width: int = 16, n_blocks: int = 2) -> None:
        super().__init__()
        self.n_labels = n_labels
        w = width
        self.first, self.norm0 = nn.Conv2d(channels + n_labels, w, 7, 1, 3, bias=False), instance_norm(w)
        self.down1, self.norm1 = nn.Conv2d(w, 2 * w, 4, 2, 1, bias=False), instance_norm(2 * w)
        self.down2, self.norm2 = nn.Conv2d(2 * w, 4 * w, 4, 2, 1, bias=False), instance_norm(4 * w)
        self.blocks = nn.Sequential(*(ResidualBlock(4 * w) for _ in range(n_blocks)))
        self.up2, self.norm3 = nn.ConvTranspose2d(4 * w, 2 * w, 4, 2, 1, bias=False), instance_norm(2 * w)
        self.up1, self.norm4 = nn.ConvTranspose2d(2 * w, w, 4, 2, 1, bias=False), instance_norm(w)
        self.last = nn.Conv2d(w, channels, 7, 1, 3, bias=False)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        n, _, height, width = x.shape
        tiled = one_hot(label, self.n_labels).to(x.dtype).view(n, -1, 1, 1).expand(-1, -1, height, width)
        h0 = relu(self.norm0(self.first(torch.cat([x, tiled], 1))))
        h1 = relu(self.norm1(self.down1(h0)))
        h = self.blocks(relu(self.norm2(self.down2(h1))))
        # Output sizes are given because the downsampling rounds sides that are not multiples of four.
        h = relu(self.norm3(self.up2(h, output_size=h1.shape[-2:])))
        h = relu(self.norm4(self.up1(h, output_size=h0.shape[-2:])))
        return torch.tanh(self.last(h))
