import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, cross_entropy

from fgmix.algorithms import Algorithm, BaseConfig, Batches, batch_of, register, setting
from fgmix.errors import UserError
from fgmix.functional.style import instance_statistics, restyle
from fgmix.networks.parts import change_maps
from fgmix.networks.stages import FeatureMap, residual_blocks

Box = tuple[slice, slice]
MIN_AREA = 0.1  # least share of the map that a crop covers; the authors' value


@register("cnsn")
class CNSN(Algorithm):
    """CrossNorm exchanges the styles of samples in training; SelfNorm learns to recalibrate them.

        CrossNorm   h ← σ[π]·(h − μ)/σ + μ[π]         at `active` random residual blocks, with probability p per step
        SelfNorm    h ← g·h,  g = sigmoid(BN(w_μ·μ + w_σ·σ))    at the end of every residual block, always
        two gates   h ← g·(h − μ) + f·μ                         f a second gate, computed as g

    μ, σ are the mean and standard deviation of each (sample, channel); nothing is detached. The loss is cross-entropy.
    The featurizer is modified: its residual blocks get SelfNorm layers.

    Tang et al., "CrossNorm and SelfNorm for Generalization under Distribution Shifts", 2021,
    https://arxiv.org/abs/2102.02811. Variant: the authors' code with the settings of its only domain-generalization
    experiment (GTAV → Cityscapes: one active CrossNorm, p = 0.5, style taken from a crop), both layers at the end of
    the block as in the FGMix paper, and gates that start near 1.
    """

    label = "CNSN"
    family = "style"
    cost = 1.0
    targets = "soft"
    needs_stages = True

    class Config(BaseConfig):
        p: float = setting(0.5, help="probability of a step with CrossNorm", ge=0, le=1)
        active: int = setting(1, help="number of blocks whose CrossNorm acts in such a step", ge=1)
        crop: Literal["neither", "style", "content", "both"] = setting(
            "style", help="which maps CrossNorm crops to a random box"
        )
        two_gates: bool = setting(False, help="separate gates for mean and deviation, as in the paper")
        gate_bias: float = setting(
            4.0, help="initial bias of SelfNorm's gates; 0, the authors', is for training from scratch"
        )

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        blocks = add_selfnorm(featurizer, config.two_gates, config.gate_bias)  # first: the optimiser must see the gates
        super().__init__(featurizer, classifier, n_domains, config)
        self.blocks = blocks

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        with change_maps(self.featurizer, self.active_blocks(), self.crossnorm):
            logits = self.predict(x)
        return {"loss": cross_entropy(logits, y)}

    def active_blocks(self) -> list[FeatureMap]:
        """Return the blocks whose CrossNorm acts in this step."""
        if torch.rand(()) >= self.config.p:
            return []
        return [self.blocks[i] for i in torch.randperm(len(self.blocks))[: self.config.active].tolist()]

    def crossnorm(self, h: Tensor) -> Tensor:
        """Apply CrossNorm with this step's permutation and boxes."""
        whole = slice(None), slice(None)
        size = h.shape[2], h.shape[3]
        content = random_box(*size) if self.config.crop in ("content", "both") else whole
        style = random_box(*size) if self.config.crop in ("style", "both") else whole
        return exchange_style(h, torch.randperm(len(h)).to(h.device, non_blocking=True), content, style)


def exchange_style(h: Tensor, pi: Tensor, content: Box, style: Box) -> Tensor:
    """Give the box `content` of h_i the style of the box `style` of h_π(i); the rest of h_i is unchanged."""
    rows, columns = content
    part = h[:, :, rows, columns]
    mu, sigma = instance_statistics(h[:, :, style[0], style[1]])
    out = h.clone()
    out[:, :, rows, columns] = restyle(part, instance_statistics(part), (mu[pi], sigma[pi]))
    return out


def random_box(height: int, width: int) -> Box:
    """Return rows and columns around a uniform centre, sides √r of the map's with r ~ U(0, 1), clipped to the map.

    Sampled again until the box covers more than `MIN_AREA` of the map and more than one pixel, which has no variance.
    A map with a side below 3 contains no such box (half of its side rounds to 0) and is used whole.
    """
    if min(height, width) < 3:
        return slice(0, height), slice(0, width)
    while True:
        share = float(torch.rand(())) ** 0.5
        rows, columns = _random_span(height, share), _random_span(width, share)
        pixels = (rows.stop - rows.start) * (columns.stop - columns.start)
        if pixels > max(1, MIN_AREA * height * width):
            return rows, columns


def _random_span(length: int, share: float) -> slice:
    half = int(length * share) // 2
    centre = int(torch.randint(length, ()))
    return slice(max(centre - half, 0), min(centre + half, length))


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
