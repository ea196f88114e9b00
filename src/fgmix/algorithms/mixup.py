import torch
from torch import Tensor

from fgmix.algorithms import Algorithm, BaseConfig, Batches, log_uniform, register, search
from fgmix.functional.mixup import mixup_loss, ring_pairs, sample_beta


@register("mixup")
class Mixup(Algorithm):
    """Train on interpolated inputs and labels of pairs of domains.

        x̃ = λ·x_i + (1 − λ)·x_j,   λ ~ Beta(α, α)
        L = mean over pairs (i, j) of λ·CE(h(g(x̃)), y_i) + (1 − λ)·CE(h(g(x̃)), y_j)

    with x_i, y_i the batch of domain i and one λ per pair.

    Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018, https://arxiv.org/abs/1710.09412; between domains:
    Xu et al., 2020, https://arxiv.org/abs/1912.01805, and Yan et al., 2020, https://arxiv.org/abs/2001.00677. Variant:
    DomainBed's, whose k pairs (i, j) are neighbours in a random ring of the domains.
    """

    label = "Mixup"
    family = "mixup"
    cost = 1.0
    targets = "soft"
    domainbed_name = "Mixup"
    min_domains = 2

    class Config(BaseConfig):
        alpha: float = search(0.2, log_uniform(1e-1, 1e1), help="α of λ ~ Beta(α, α)", domainbed="mixup_alpha", ge=1e-6)

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        pairs = ring_pairs(batches)
        lam = sample_beta(self.config.alpha, len(pairs)).to(batches[0][0].device, non_blocking=True)
        if self.batch_norm_trains:  # which normalises each pair by its own statistics, as in DomainBed
            losses = [mixup_loss(self.predict, [pair], lam[i : i + 1]) for i, pair in enumerate(pairs)]
            return {"loss": torch.stack(losses).mean()}
        return {"loss": mixup_loss(self.predict, pairs, lam)}
