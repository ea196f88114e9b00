"""A discriminator of image patches at several scales, and its losses."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, leaky_relu

from fgmix.networks.disentangle import conv


class _ResidualBlock(nn.Module):
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
        return nn.Sequential(*layers, *(_ResidualBlock(2 * w) for _ in range(n_blocks)), conv(2 * w, 1, 1))

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
