"""DDG's generator: encode the variation s of an image, and decode an image from any s and any semantic code f."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import group_norm, interpolate, leaky_relu


def conv(c_in: int, c_out: int, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    """Build a convolution with reflection padding that keeps the size (divided by its stride)."""
    return nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, padding_mode="reflect")


def adain(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Compute scale·(x − μ)/σ + bias with μ, σ of each (sample, channel): adaptive instance normalisation.

    The factor is `scale`, not 1 + `scale`. Huang and Belongie, "Arbitrary Style Transfer in Real-time with Adaptive
    Instance Normalization", 2017, https://arxiv.org/abs/1703.06868.

    x (n, c, h, w) are maps; scale and bias are (n, c).
    """
    # Groups of one channel: instance normalisation with torch's faster kernel (see networks.generator).
    return torch.addcmul(bias[:, :, None, None], group_norm(x, x.shape[1]), scale[:, :, None, None])


class _Block(nn.Module):
    """conv3 → instance norm → leaky ReLU."""

    def __init__(self, c_in: int, c_out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = conv(c_in, c_out, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        return leaky_relu(group_norm(self.conv(x), self.conv.out_channels), 0.2)


class _ResidualBlock(nn.Module):
    """x + IN(conv(lrelu(IN(conv(x))))), with instance norms without parameters."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.block, self.conv = _Block(channels, channels), conv(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + group_norm(self.conv(self.block(x)), x.shape[1])


class _AdaINBlock(nn.Module):
    """x + AdaIN(conv(lrelu(AdaIN(conv(x))))), with scales and biases as an input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = conv(channels, channels), conv(channels, channels)

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        """Return maps of the shape of x; style (n, 4, c) has scale and bias of the first AdaIN, then of the second."""
        h = leaky_relu(adain(self.conv1(x), style[:, 0], style[:, 1]), 0.2)
        return x + adain(self.conv2(h), style[:, 2], style[:, 3])


class VariationEncoder(nn.Module):
    """E_v: grey image → variation code s, a map (n, out_channels, h/2^downs, w/2^downs).

        conv3 stride 2 → conv3, twice as wide → (downs − 1) × [conv3 → conv3 stride 2, twice as wide] → residual blocks

    Images are converted to grey, so that colour can only come from the semantic code.

    The first convolution has `width` channels.

    >>> E_v = VariationEncoder(width=4)
    >>> E_v(torch.zeros(2, 3, 16, 16)).shape, E_v.out_channels
    (torch.Size([2, 16, 4, 4]), 16)
    """

    def __init__(self, width: int = 16, downs: int = 2, n_blocks: int = 2) -> None:
        super().__init__()
        layers: list[nn.Module] = [_Block(1, width, stride=2), _Block(width, 2 * width)]
        c = 2 * width
        for _ in range(downs - 1):
            layers += [_Block(c, c), _Block(c, 2 * c, stride=2)]
            c *= 2
        self.layers = nn.Sequential(*layers, *(_ResidualBlock(c) for _ in range(n_blocks)))
        self.out_channels = c

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self.layers(x.mean(1, keepdim=True))
        return s


class Decoder(nn.Module):
    """Dec: variation code s and semantic code f → image; f determines scale and bias of the AdaIN layers.

        AdaIN residual blocks → downs × [double the size → conv5, half as wide → layer norm → lrelu]
        → conv3 → lrelu → conv3 → lrelu → conv1

    The output is linear: only the losses keep pixels in their range.

    s has `in_channels` channels, f the length `code_size`, and `hidden` is the width of the network that maps f to
    scales and biases.

    >>> dec = Decoder(16, code_size=8, channels=3)
    >>> dec(torch.zeros(2, 16, 4, 4), torch.zeros(2, 8), size=(16, 15)).shape
    torch.Size([2, 3, 16, 15])
    """

    def __init__(
        self, in_channels: int, code_size: int, channels: int, downs: int = 2, n_blocks: int = 2, hidden: int = 256
    ) -> None:
        super().__init__()
        c = in_channels
        self.style = nn.Sequential(
            nn.Linear(code_size, hidden),
            nn.LeakyReLU(0.2),
            nn.Linear(hidden, hidden),
            nn.LeakyReLU(0.2),
            nn.Linear(hidden, n_blocks * 4 * c),
            nn.Unflatten(1, (n_blocks, 4, c)),
        )
        self.blocks = nn.ModuleList(_AdaINBlock(c) for _ in range(n_blocks))
        self.ups = nn.ModuleList(conv(c >> i, c >> (i + 1), 5) for i in range(downs))
        self.norms = nn.ModuleList(nn.GroupNorm(1, c >> (i + 1)) for i in range(downs))  # one group: layer norm
        c >>= downs
        self.head = nn.Sequential(
            conv(c, c), nn.LeakyReLU(0.2), conv(c, c), nn.LeakyReLU(0.2), conv(c, channels, kernel=1)
        )

    def forward(self, s: Tensor, f: Tensor, size: tuple[int, int]) -> Tensor:
        """Return the image, cropped to `size` = (height, width): sides not divisible by 2^downs were rounded up."""
        styles = self.style(f).unbind(1)
        for block, style in zip(self.blocks, styles):
            s = block(s, style)
        for up, norm in zip(self.ups, self.norms):
            s = leaky_relu(norm(up(interpolate(s, scale_factor=2))), 0.2)
        x: Tensor = self.head(s)
        return x[..., : size[0], : size[1]]


class Disentangler(nn.Module):
    """The generator: E_v and Dec, with He initialisation.

    Zhang et al., "Towards Principled Disentanglement for Domain Generalization", 2022,
    https://arxiv.org/abs/2111.13839, with widths for 224 pixels; here the defaults are `width` 16 and two halvings, for
    images of 16 to 64 pixels on a CPU.

    `width` is the number of channels after the first convolution of E_v, `downs` that of halvings between the image and
    s, and `n_blocks` that of residual blocks in E_v and in Dec (both 4 in the paper).

    >>> gen = Disentangler(3, code_size=8, width=4)
    >>> x, f = torch.zeros(2, 3, 16, 16), torch.zeros(2, 8)
    >>> gen.decode(gen.encode(x), f, size=(16, 16)).shape
    torch.Size([2, 3, 16, 16])
    """

    def __init__(self, channels: int, code_size: int, width: int = 16, downs: int = 2, n_blocks: int = 2) -> None:
        super().__init__()
        self.E_v = VariationEncoder(width, downs, n_blocks)
        self.Dec = Decoder(self.E_v.out_channels, code_size, channels, downs, n_blocks)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def encode(self, x: Tensor) -> Tensor:
        """Compute s = E_v(x)."""
        s: Tensor = self.E_v(x)
        return s

    def decode(self, s: Tensor, f: Tensor, size: tuple[int, int]) -> Tensor:
        """Compute Dec(s, f), an image of `size`."""
        x: Tensor = self.Dec(s, f, size)
        return x
