"""Channels and value range of images, for methods that generate images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fgmix.errors import UserError


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
