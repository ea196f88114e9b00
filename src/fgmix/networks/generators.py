"""Networks that generate images, those of L2A-OT and of DDG, and the channels and range of their images."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, group_norm, interpolate, leaky_relu, one_hot, relu

from fgmix.errors import UserError


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


def image_channels(featurizer: nn.Module) -> int:
    """Return the number of channels of the images that `featurizer` expects, from its first convolution.

    >>> from fgmix.networks import build_featurizer
    >>> image_channels(build_featurizer("small_cnn", (3, 32, 32)))
    3
    """
    for module in featurizer.modules():
        if isinstance(module, nn.Conv2d):
            return module.in_channels
    net = getattr(featurizer, "net", featurizer)
    raise UserError(
        "Expected a convolutional network on images, because this method generates images. "
        f"Found {type(net).__name__}, which has no convolution. Use images and a backbone such as `small_cnn`."
    )


class PixelRange(nn.Module):
    """Maps images to [−1, 1] and back, per channel, by the minimum and maximum observed so far.

        u = 2·(x − lo)/(hi − lo) − 1,    x = lo + (u + 1)/2·(hi − lo)

    Inputs may be in [0, 1], normalised by a mean and standard deviation, or in any other affine scale, while a
    generator that ends in tanh requires [−1, 1], and a margin on pixel errors requires a common scale. Images contain
    black and white pixels, so lo and hi stop changing after a few batches.

    >>> scale = PixelRange(1)
    >>> scale.observe(torch.tensor([0.0, 1.0]).view(1, 1, 1, 2))
    >>> scale.to_unit(torch.tensor([0.0, 0.75]).view(1, 1, 1, 2)).flatten().tolist()
    [-1.0, 0.5]
    """

    lo: Tensor
    hi: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("lo", torch.full((channels, 1, 1), torch.inf))
        self.register_buffer("hi", torch.full((channels, 1, 1), -torch.inf))

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Widen the range to include the images x (n, c, h, w)."""
        low, high = x.amin((0, 2, 3)), x.amax((0, 2, 3))
        self.lo.copy_(torch.minimum(self.lo, low.view_as(self.lo)))
        self.hi.copy_(torch.maximum(self.hi, high.view_as(self.hi)))

    def to_unit(self, x: Tensor) -> Tensor:
        """Map x in input units → u in [−1, 1]."""
        return (x - self.lo) * (2 / self._span) - 1

    def from_unit(self, u: Tensor) -> Tensor:
        """Map u in [−1, 1] → x in input units."""
        return self.lo + (u + 1) * (self._span / 2)

    @property
    def _span(self) -> Tensor:
        # The span of a channel that is constant so far is zero; any positive number will do.
        return (self.hi - self.lo).clamp_min(1e-6)


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
    >>> gen.Dec(gen.E_v(x), f, size=(16, 16)).shape
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


class _PlainBlock(nn.Module):
    """x + conv3(lrelu(conv3(x))), no normalisation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = conv(channels, channels), conv(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.conv2(leaky_relu(self.conv1(x), 0.2))
        return x + h


class PatchDiscriminator(nn.Module):
    """D(x): one map of scores per scale, one score per patch; 1 means real, 0 generated.

        per scale: conv1 → conv3 → conv3 stride 2 → conv3 → conv3 stride 2, twice as wide → residual blocks → conv1

    Between scales the image is halved by average pooling. There is no normalisation, which would couple the samples of
    the gradient penalty. Weights are initialised from N(0, 0.02²).

    In the paper the first convolutions have 32 channels (`width`), and there are 3 scales with 4 residual blocks each.
    The smallest scale needs 5 pixels.

    >>> D = PatchDiscriminator(3, width=4)
    >>> [tuple(scores.shape) for scores in D(torch.zeros(2, 3, 16, 16))]
    [(2, 1, 4, 4), (2, 1, 2, 2)]
    """

    def __init__(self, channels: int, width: int = 16, n_scales: int = 2, n_blocks: int = 1) -> None:
        super().__init__()
        self.scales = nn.ModuleList(self._one_scale(channels, width, n_blocks) for _ in range(n_scales))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, 0.0, 0.02)
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]  # `conv` always has one

    @staticmethod
    def _one_scale(channels: int, width: int, n_blocks: int) -> nn.Sequential:
        w = width
        convs = (conv(channels, w, 1), conv(w, w), conv(w, w, stride=2), conv(w, w), conv(w, 2 * w, stride=2))
        layers = [layer for c in convs for layer in (c, nn.LeakyReLU(0.2))]
        return nn.Sequential(*layers, *(_PlainBlock(2 * w) for _ in range(n_blocks)), conv(2 * w, 1, 1))

    def forward(self, x: Tensor) -> list[Tensor]:
        scores = []
        for i, scale in enumerate(self.scales):
            if i > 0:
                x = avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False)
            scores.append(scale(x))
        return scores


def discriminator_loss(D: nn.Module, fake: Tensor, real: Tensor, penalty: float = 0.01) -> Tensor:
    """Compute L_D = Σ_scales [mean D(fake)² + mean (D(real) − 1)² + penalty · mean_i ‖∂ Σ D(real)/∂ real_i‖²].

    Least squares (Mao et al., 2017, https://arxiv.org/abs/1611.04076) with a gradient penalty on real images (Mescheder
    et al., 2018, https://arxiv.org/abs/1801.04406), which needs second derivatives. Computed without autocast: squared
    gradients underflow in half precision.

    The generated images are detached, the real ones in the dtype of the weights of D.
    """
    with torch.autocast(real.device.type, enabled=False):
        real = real.detach().requires_grad_()
        loss = real.new_zeros(())
        for on_fake, on_real in zip(D(fake.to(real.dtype)), D(real)):
            (gradient,) = torch.autograd.grad(on_real.sum(), real, create_graph=True)
            steepness = gradient.square().sum((1, 2, 3)).mean()
            loss = loss + on_fake.square().mean() + (on_real - 1).square().mean() + penalty * steepness
        return loss


def generator_loss(D: nn.Module, fake: Tensor) -> Tensor:
    """Compute L_G = Σ_scales 2·mean (D(fake) − 1)²: small if D scores generated images as real."""
    return torch.stack([2 * (scores - 1).square().mean() for scores in D(fake)]).sum()
