"""The method CNSN: CrossNorm and SelfNorm."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms._base import Algorithm, Batches, batch_of
from fgmix.algorithms._config import BaseConfig, setting
from fgmix.algorithms._registry import register
from fgmix.functional.style import instance_statistics, restyle
from fgmix.networks.parts import change_maps
from fgmix.networks.selfnorm import add_selfnorm
from fgmix.networks.stages import FeatureMap

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
    year = 2021
    paper = "https://arxiv.org/abs/2102.02811"
    family = "style"
    cost = 1.0
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

    config: Config  # narrows the base's type

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
