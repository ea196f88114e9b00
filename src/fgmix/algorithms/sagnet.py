"""The method SagNet; its update on feature maps is in `_sagnet_maps`."""

from __future__ import annotations

import copy
from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms._base import Algorithm, Batches, batch_of, descend
from fgmix.algorithms._config import BaseConfig, log_uniform, search, setting
from fgmix.algorithms._registry import register
from fgmix.algorithms._sagnet_maps import adversary_parameters, numbered_stage, update_on_maps
from fgmix.algorithms._sagnet_styles import (
    distance_to_uniform,
    partners,
    randomise_content,
    randomise_style,
    shares,
)
from fgmix.networks.split import network_from


@register("sagnet")
class SagNet(Algorithm):
    """Style-agnostic network: train on content under random styles, against a network that sees only the style.

        style randomisation    SR(z) = σ' (z − μ)/σ + μ',   μ' = α μ + (1 − α) μ_π,   σ'² = α σ² + (1 − α) σ_π²
        content randomisation  CR(z) = σ (z_π − μ_π)/σ_π + μ,   with (z_π − μ_π)/σ_π constant

        content    L_c   = CE(h(SR(z)), y)                         updates g and h
        style      L_s   = CE(s(CR(z)), y)                         updates s
        adversary  L_adv = w · mean_c −log softmax(s(CR(z)))_c     updates g

    μ and σ are the mean and standard deviation of one sample, π is a permutation of the batch (the index π marks the
    values of a sample's partner), α ~ U(0, 1) is sampled per sample, and s is the style network.

    Nam et al., "Reducing Domain Gap by Reducing Style Bias", 2021, https://arxiv.org/abs/1910.11645. Variant: level
    `vector`, the default, is DomainBed's, on the final code (one μ and σ over its d numbers), s a classifier, three
    updates in turn. Level `maps` is the authors', on the maps that enter a stage (μ and σ of every channel), s a copy
    of the rest of the network, all gradients from one forward pass, and an adversarial loss that updates only the
    scales and shifts of the normalisation layers before that stage.
    """

    label = "SagNet"
    year = 2021
    paper = "https://arxiv.org/abs/1910.11645"
    family = "style"
    cost = 2.0
    domainbed_name = "SagNet"

    class Config(BaseConfig):
        w_adv: float = search(
            0.1, log_uniform(1e-2, 1e1), help="weight w of the adversarial loss", domainbed="sag_w_adv", ge=0
        )
        level: Literal["vector", "maps"] = setting(
            "vector", help="randomise the final code (vector, DomainBed's) or feature maps (maps, the authors')"
        )
        stage: int = setting(3, help="for level maps: the stage, counted from 1, whose input is randomised", ge=1)

    config: Config  # narrows the base's type

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        self.style_network = _untrained_copy(classifier)
        if config.level == "maps":
            stage = numbered_stage(featurizer, config.stage)
            self.entry = stage.entry  # name of the module whose input is randomised
            self.adversary_optimizer = self.adam(adversary_parameters(featurizer, stage.entry))
            self.style_network = nn.Sequential(network_from(featurizer, stage), self.style_network)
        self.style_optimizer = self.adam(self.style_network.parameters())

    def update(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        return update_on_maps(self, x, y) if self.config.level == "maps" else self.update_on_codes(x, y)

    def update_on_codes(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """One step: the losses L_c, L_s and L_adv in turn, each computed after the previous update."""
        g, h, s = self.featurizer, self.classifier, self.style_network
        content = cross_entropy(h(randomise_style(g(x), shares(x), partners(x))), y)
        descend(self.optimizer, content)

        # DomainBed encodes x twice more; only s changes in between, so one pass gives the codes of both.
        z = g(x)
        style = cross_entropy(s(randomise_content(z.detach(), partners(x))), y)
        descend(self.style_optimizer, style)

        adversary = self.config.w_adv * distance_to_uniform(s(randomise_content(z, partners(x))))
        descend(self.optimizer, adversary)  # updates g alone: Adam skips h, which has no gradient
        return {"loss": content, "style": style, "adversary": adversary}


def _untrained_copy(module: nn.Module) -> nn.Module:
    """The same layers, initialised anew."""
    fresh = copy.deepcopy(module)
    for layer in fresh.modules():
        reset = getattr(layer, "reset_parameters", None)
        if callable(reset):
            reset()
    return fresh
