import torch
from torch import Tensor, nn

from fgmix.algorithms import Algorithm, BaseConfig, Batches, log_uniform, register, search
from fgmix.functional.domains import domain_risks


@register("groupdro")
class GroupDRO(Algorithm):
    """Minimise a weighted risk whose weights shift to the source domains with the highest risk.

        q_e ← q_e · exp(η L_e) / Σ_j q_j · exp(η L_j),    L = Σ_e q_e L_e  with q constant

    with L_e the cross-entropy of domain e and q initially uniform.

    Sagawa et al., "Distributionally Robust Neural Networks for Group Shifts", 2020, algorithm 1,
    https://arxiv.org/abs/1911.08731. Variant: DomainBed's, where a group is a domain and every step uses all of them.
    """

    label = "GroupDRO"
    family = "robust"
    cost = 1.0
    min_domains = 2
    targets = "weighted"
    domainbed_name = "GroupDRO"

    q: Tensor

    class Config(BaseConfig):
        eta: float = search(
            1e-2, log_uniform(1e-3, 1e-1), help="step size η of the domain weights", domainbed="groupdro_eta", ge=0
        )

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: BaseConfig) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        self.register_buffer("q", torch.full((n_domains,), 1 / n_domains))

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        L = domain_risks(map(self.classifier, self.encode(batches, alone=True)), batches)  # (k,)
        self.q = reweight(self.q, L.detach(), self.config.eta)
        return {"loss": self.q @ L, "risk": L.mean(), "worst": L.max()}


def reweight(q: Tensor, L: Tensor, eta: float) -> Tensor:
    """Take an exponentiated-gradient step of the weights, q_e · exp(η L_e) / Σ_j q_j · exp(η L_j).

    As a softmax, which cannot overflow however large η L is.

    >>> reweight(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 1.0]), eta=0.1).tolist()
    [0.5, 0.5]
    """
    return torch.softmax(q.log() + eta * L, 0)
