from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm, BaseConfig, Batches, batch_of, register, setting
from fgmix.errors import bad_value
from fgmix.functional.mixup import sample_beta
from fgmix.functional.style import instance_statistics, restyle
from fgmix.networks.parts import change_maps
from fgmix.networks.stages import stages

EPS = 1e-6  # the authors' ε


@register("mixstyle")
class MixStyle(Algorithm):
    """Mix the style statistics of feature maps between samples, after the first stages of the network.

        h ← (λσ + (1 − λ)σ[π]) · (h − μ)/σ + λμ + (1 − λ)μ[π],   λ_i ~ Beta(α, α), one per sample

    h are the feature maps after a stage; μ and σ = √(var + 1e-6) are the mean and standard deviation of each (sample,
    channel), without gradient. Labels are not mixed. After each of the first `first_stages` stages the whole batch is
    mixed with probability p; each stage samples its own λ and permutation π. Nothing is added to the network:
    predictions are those of the plain network.

    Zhou et al., "Domain Generalization with MixStyle", 2021, https://arxiv.org/abs/2104.02008. Variant: the authors'
    code; after stages 1 and 2, as in the FGMix paper (the authors: 1–3 for PACS, 1–2 for OfficeHome).
    """

    label = "MixStyle"
    family = "style"
    cost = 1.0
    targets = "soft"
    needs_stages = True

    class Config(BaseConfig):
        alpha: float = setting(0.1, help="α of λ ~ Beta(α, α)", ge=1e-6)
        p: float = setting(0.5, help="probability of mixing after a stage", ge=0, le=1)
        first_stages: int = setting(2, help="number of first stages that MixStyle follows", ge=1)
        mix: Literal["random", "crossdomain"] = setting(
            "random", help="whose style: of any sample of the batch, or of one of another domain"
        )

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        known = stages(featurizer)
        if config.first_stages > len(known):
            raise bad_value("first_stages", f"at most {len(known)}, the stages of this network", config.first_stages)
        self.maps = [stage.end for stage in known[: config.first_stages]]

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        sizes = [len(y_e) for _, y_e in batches]

        def change(h: Tensor) -> Tensor:
            if torch.rand(()) >= self.config.p:
                return h
            lam = sample_beta(self.config.alpha, len(h), 1, 1, 1).to(h.device, non_blocking=True)
            pi = torch.randperm(len(h)) if self.config.mix == "random" else crossdomain_partners(sizes)
            return mix_style(h, lam, pi.to(h.device, non_blocking=True))

        with change_maps(self.featurizer, self.maps, change):
            logits = self.predict(x)
        return {"loss": cross_entropy(logits, y)}


def mix_style(h: Tensor, lam: Tensor, pi: Tensor) -> Tensor:
    """Return maps with the statistics λ·(own) + (1 − λ)·(partner's).

    h (n, c, height, width) are maps, λ is (n, 1, 1, 1), and π (n,) gives the partner of each sample.
    """
    with torch.no_grad():
        mu, sigma = instance_statistics(h, EPS)
        mixed = lam * mu + (1 - lam) * mu[pi], lam * sigma + (1 - lam) * sigma[pi]
    return restyle(h, (mu, sigma), mixed)


def crossdomain_partners(sizes: list[int]) -> Tensor:
    """Compute π (n,) with partners from another domain: the next one in a random ring of the domains.

    With two domains of equal size this is the authors' rule (each half gets the styles of the other, shuffled).
    """
    starts = [sum(sizes[:e]) for e in range(len(sizes))]
    order = torch.randperm(len(sizes)).tolist()
    following = dict(zip(order, order[1:] + order[:1]))

    def partners(e: int) -> Tensor:
        j = following[e]
        shuffled = torch.randperm(sizes[j]).repeat(-(-sizes[e] // sizes[j]))  # repeated if domain j is the smaller one
        return starts[j] + shuffled[: sizes[e]]

    return torch.cat([partners(e) for e in range(len(sizes))])
