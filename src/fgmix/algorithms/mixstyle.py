"""MixStyle: mix the style statistics of feature maps between instances, after the first residual stages.

    h ← (λσ + (1 − λ)σ[π]) · (h − μ)/σ + λμ + (1 − λ)μ[π],   λ_i ~ Beta(α, α), one per instance

μ, σ are the mean and deviation of each (instance, channel) and take no gradient. Labels are not mixed. After every
stage concerned a coin of probability p decides for the whole batch; each has its own λ and permutation π.

Zhou et al., "Domain Generalization with MixStyle", 2021. Variant: the authors' code; after stages 1 and 2, as the
FGMix paper has it (the authors: 1–3 for PACS, 1–2 for OfficeHome).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms._base import Algorithm, Batches, batch_of
from fgmix.algorithms._config import BaseConfig, setting
from fgmix.algorithms._registry import register
from fgmix.errors import bad_value
from fgmix.functional.mixup import sample_beta
from fgmix.functional.style import instance_statistics, restyle
from fgmix.networks.hooks import changing_outputs
from fgmix.networks.stages import stages

EPS = 1e-6  # the authors' ε


@register("mixstyle")
class MixStyle(Algorithm):
    """Styles mixed in training; nothing is added to the network, which predicts as it is.

    Example:
        >>> from fgmix.algorithms import create
        >>> from fgmix.networks import build_featurizer
        >>> g = build_featurizer("small_cnn", (3, 16, 16))
        >>> method = create("mixstyle", featurizer=g, classifier=nn.Linear(96, 2), n_domains=1)
        >>> sorted(method.step([(torch.randn(4, 3, 16, 16), torch.zeros(4, dtype=torch.long))]))
        ['loss']
    """

    label = "MixStyle"
    year = 2021
    paper = "https://arxiv.org/abs/2104.02008"
    needs_stages = True

    class Config(BaseConfig):
        alpha: float = setting(0.1, help="α of λ ~ Beta(α, α)")
        p: float = setting(0.5, help="probability of mixing after a stage")
        first_stages: int = setting(2, help="how many of the first stages are followed by MixStyle")
        mix: Literal["random", "crossdomain"] = setting(
            "random", help="whose style: anyone's in the batch, or an instance's of another domain"
        )

        def __post_init__(self) -> None:
            super().__post_init__()
            if not self.alpha > 0:
                raise bad_value("alpha", "positive", self.alpha)
            if not 0 <= self.p <= 1:
                raise bad_value("p", "between 0 and 1", self.p)
            if self.first_stages < 1:
                raise bad_value("first_stages", "a positive integer", self.first_stages)

    config: Config  # narrows the base's type

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        stages(featurizer)  # refuses a network without stages before training starts

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        sizes = [len(y_e) for _, y_e in batches]

        def change(h: Tensor) -> Tensor:
            if torch.rand(()) >= self.config.p:
                return h
            lam = sample_beta(self.config.alpha, len(h), 1, 1, 1).to(h.device)
            pi = torch.randperm(len(h)) if self.config.mix == "random" else crossdomain_partners(sizes)
            return mix_style(h, lam, pi.to(h.device))

        with changing_outputs(stages(self.featurizer)[: self.config.first_stages], change):
            logits = self.predict(x)
        return {"loss": cross_entropy(logits, y)}


def mix_style(h: Tensor, lam: Tensor, pi: Tensor) -> Tensor:
    """Maps h (n, c, h, w) in the style λ·(own) + (1 − λ)·(π's); λ (n, 1, 1, 1)."""
    with torch.no_grad():
        mu, sigma = instance_statistics(h, EPS)
        mixed = lam * mu + (1 - lam) * mu[pi], lam * sigma + (1 - lam) * sigma[pi]
    return restyle(h, (mu, sigma), mixed)


def crossdomain_partners(sizes: list[int]) -> Tensor:
    """π (n,) that sends every instance to one of another domain: the next in a random ring of the domains.

    With two equally long domains this is the authors' rule (each half takes the other's styles, shuffled).

    Args:
        sizes: instances per domain, in the batch's order.
    """
    starts = [sum(sizes[:e]) for e in range(len(sizes))]
    order = torch.randperm(len(sizes)).tolist()
    following = dict(zip(order, order[1:] + order[:1]))

    def partners(e: int) -> Tensor:
        j = following[e]
        shuffled = torch.randperm(sizes[j]).repeat(-(-sizes[e] // sizes[j]))  # cycled where domain j is the shorter
        return starts[j] + shuffled[: sizes[e]]

    return torch.cat([partners(e) for e in range(len(sizes))])
