"""SelfNorm: gates that recalibrate the style of feature maps at the end of every residual block."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from fgmix.errors import UserError
from fgmix.functional.style import instance_statistics
from fgmix.networks.stages import FeatureMap, residual_blocks


class Gate(nn.Module):
    """sigmoid(BN(w_μ·μ + w_σ·σ)) for each channel separately; w_μ and w_σ are the rows of `w`.

    `bias` is the initial shift of the batch norm: the gate starts near sigmoid(bias).
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, bias: float) -> None:
        super().__init__()
        # The authors' initialisation: that of a depthwise convolution over the two statistics.
        self.w = nn.Parameter(torch.empty(2, channels).uniform_(-math.sqrt(0.5), math.sqrt(0.5)))
        self.gamma = nn.Parameter(torch.ones(channels))
        self.beta = nn.Parameter(torch.full((channels,), bias))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, mu: Tensor, sigma: Tensor) -> Tensor:
        """Map statistics (n, c, 1, 1) → gates (n, c, 1, 1)."""
        a = self.w[0] * mu.flatten(1) + self.w[1] * sigma.flatten(1)
        # Not a BatchNorm module: a featurizer may keep those in evaluation mode for their pre-trained statistics, which
        # this layer lacks. A single sample has no batch statistics and uses the running ones.
        from_batch = self.training and len(a) > 1
        a = batch_norm(a, self.running_mean, self.running_var, self.gamma, self.beta, training=from_batch)
        return torch.sigmoid(a)[..., None, None]


class SelfNorm(nn.Module):
    """g·x, or with two gates g·(x − μ) + f·μ, where g and f are gates of μ and σ of each (sample, channel).

    Tang et al., "CrossNorm and SelfNorm for Generalization under Distribution Shifts", 2021,
    https://arxiv.org/abs/2102.02811.

    Two gates, f for the mean and g for the standard deviation, are the paper's; the authors' code scales both by g.

    >>> SelfNorm(8)(torch.randn(2, 8, 4, 4)).shape
    torch.Size([2, 8, 4, 4])
    """

    def __init__(self, channels: int, two_gates: bool = False, bias: float = 0.0) -> None:
        super().__init__()
        self.g = Gate(channels, bias)
        self.f = Gate(channels, bias) if two_gates else None

    def forward(self, x: Tensor) -> Tensor:
        mu, sigma = instance_statistics(x, eps=1e-12)
        g: Tensor = self.g(mu, sigma)
        if self.f is None:
            return (g * x).to(x.dtype)
        return torch.addcmul((self.f(mu, sigma) - g) * mu, g, x).to(x.dtype)


def add_selfnorm(featurizer: nn.Module, two_gates: bool = False, bias: float = 0.0) -> list[FeatureMap]:
    """Add a SelfNorm at the end of every residual block of `featurizer`, as its child `selfnorm`; return the blocks.

    Other parameters keep their names. The hook looks the layer up in the block that it is called for, so that a deep
    copy of the network uses its own layers.
    """
    if any(isinstance(module, SelfNorm) for module in featurizer.modules()):
        raise UserError("Expected a featurizer without SelfNorm layers. Found one that has them. Build a new one.")
    blocks = residual_blocks(featurizer)
    for place in blocks:
        block, layer = featurizer.get_submodule(place.name), SelfNorm(place.channels, two_gates, bias)
        block.add_module("selfnorm", layer.to(next(featurizer.parameters()).device))
        block.register_forward_hook(_apply_channels_last if place.channels_last else _apply)
    return blocks


def _apply(block: nn.Module, _inputs: tuple[Tensor, ...], h: Tensor) -> Tensor:
    out: Tensor = block.get_submodule("selfnorm")(h)
    return out


def _apply_channels_last(block: nn.Module, inputs: tuple[Tensor, ...], h: Tensor) -> Tensor:
    return _apply(block, inputs, h.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
