import copy
from functools import cache
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm, BaseConfig, Batches, batch_of, choice, register, search, uniform
from fgmix.errors import UserError
from fgmix.functional import numbers
from fgmix.networks.text import TextHead


@register("clipood")
class CLIPood(Algorithm):
    """Fine-tuning of CLIP's image tower with margins between texts, and a Beta-weighted average of the weights.

        L = −mean log exp(s·S_y) / (exp(s·S_y) + Σ_{c≠y} exp(s·(S_c + λ (1 − cos(t_y, t_c))))),  S_c = cos(g(x), t_c)
        θ = Σ_t α_t w_t / Σ_t α_t,    α_t = Beta(β, β) density at (t + 1/2)/(T + 1),  t = 0, …, T

    with w_t the trained weights after t steps, w_0 the pre-trained ones, θ those that predict, t_c the constant text
    embedding of class c, and s = 1/τ of the pre-trained model.

    Shu et al., "CLIPood: Generalizing CLIP to Out-of-Distributions", 2023, https://arxiv.org/abs/2302.00864.
    """

    label = "CLIPood"
    family = "text"
    cost = 1.0
    keeps = "an averaged copy"
    head = "text-frozen"
    per_sample = True

    class Config(BaseConfig):
        lam: float = search(0.3, None, paper=uniform(0.1, 0.5), help="weight λ of the margins between texts", ge=0)
        beta: float = search(0.5, None, paper=choice(0.2, 0.5, 0.8), help="β of the weights Beta(β, β)", gt=0)

    classifier: TextHead

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        if not isinstance(classifier, TextHead):
            raise UserError(
                "CLIPood expects a head of text embeddings, which give its margins. Found "
                f"{type(classifier).__name__}. Use --head text-frozen."
            )
        super().__init__(featurizer, classifier, n_domains, config)
        self.trained = copy.deepcopy(featurizer)  # w
        self.optimizer = self.build_model_optimizer([self.trained], [])

    def update(self, batches: Batches) -> dict[str, Tensor]:
        terms = super().update(batches)
        self.average()
        return terms

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        o = self.classifier(self.trained(x))
        loss = cross_entropy(o + self.config.lam * self.classifier.scale * self.margins()[y], y)
        return {"loss": loss, "risk": cross_entropy(o, y)}

    def margins(self) -> Tensor:
        """Compute 1 − cos(t_y, t_c), (C, C)."""
        t = nn.functional.normalize(self.classifier.weight.detach(), dim=1)
        return 1 - t @ t.T

    @torch.no_grad()
    def average(self) -> None:
        """Add w to the average θ."""
        t = min(self.updates + 1, self.config.steps)
        share = list_shares(self.config.beta, self.config.steps)[t]
        for theta_p, w_p in zip(numbers(self.featurizer), numbers(self.trained), strict=True):
            theta_p.lerp_(w_p, share)


@cache
def list_shares(beta: float, steps: int) -> tuple[float, ...]:
    """List the share α_t / (α_0 + … + α_t) of w_t in the average after step t, for t = 0, …, T.

    >>> list_shares(1.0, 3)  # equal weights
    (1.0, 0.5, 0.3333333333333333, 0.25)
    """
    places = [(t + 0.5) / (steps + 1) for t in range(steps + 1)]
    alpha = [(u * (1 - u)) ** (beta - 1) for u in places]  # the constant factor of the density cancels
    return tuple(a / total for a, total in zip(alpha, accumulate(alpha)))
