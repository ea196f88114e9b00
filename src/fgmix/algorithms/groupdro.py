"""The method GroupDRO."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fgmix.algorithms._base import Algorithm, Batches
from fgmix.algorithms._config import BaseConfig, log_uniform, search
from fgmix.algorithms._registry import register
from fgmix.functional.domains import domain_risks


@register("groupdro")
class GroupDRO(Algorithm):
    """Minimise the risk of the worst source domain, by domain weights that follow the risks.

        q_e ← q_e · exp(η L_e), normalised to Σ_e q_e = 1;    L = Σ_e q_e L_e, with q constant

    with L_e the cross-entropy of domain e.

    Sagawa et al., "Distributionally Robust Neural Networks for Group Shifts", 2020, algorithm 1,
    https://arxiv.org/abs/1911.08731. Variant: DomainBed's, a domain for a group and one batch of every domain in each
    step.
    """

    label = "GroupDRO"
    year = 2020
    paper = "https://arxiv.org/abs/1911.08731"
    family = "robust"
    cost = 1.0
    domainbed_name = "GroupDRO"

    q: Tensor

    class Config(BaseConfig):
        eta: float = search(
            1e-2, log_uniform(1e-3, 1e-1), help="step size η of the domain weights", domainbed="groupdro_eta", ge=0
        )

    config: Config  # narrows the base's type

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: BaseConfig) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        self.register_buffer("q", torch.full((n_domains,), 1 / n_domains))

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        L = domain_risks(map(self.classifier, self.encode(batches)), batches)  # (k,)
        self.q = reweighted(self.q, L.detach(), self.config.eta)
        return {"loss": self.q @ L, "risk": L.mean(), "worst": L.max()}


def reweighted(q: Tensor, L: Tensor, eta: float) -> Tensor:
    """Exponentiated-gradient step of the weights, q_e exp(η L_e) / Σ q_e' exp(η L_e').

    As a softmax, which cannot overflow however large η L is.

    Args:
        q: weights (k,).
        L: risks (k,).
        eta: η.

    Example:
        >>> reweighted(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 1.0]), eta=0.1).tolist()
        [0.5, 0.5]
    """
    return torch.softmax(q.log() + eta * L, 0)
