from torch import Tensor

from fgmix.algorithms import Algorithm, BaseConfig, Batches, log_uniform, register, search
from fgmix.functional.domains import domain_risks


@register("vrex")
class VREx(Algorithm):
    """Penalise the variance of the source domains' risks.

        L = L̄ + λ_t · 1/k Σ_e (L_e − L̄)²,    L̄ = mean_e L_e

    with L_e the cross-entropy of domain e. λ_t is 1 before step `anneal` and λ from then on; at that step Adam is
    reset, because the magnitude of the gradients changes abruptly.

    Krueger et al., "Out-of-Distribution Generalization via Risk Extrapolation (REx)", 2021,
    https://arxiv.org/abs/2003.00688. Variant: DomainBed's, whose first term is the mean of the risks (the paper's is
    their sum).
    """

    label = "VREx"
    family = "penalty"
    cost = 1.0
    min_domains = 2
    targets = "weighted"
    domainbed_name = "VREx"
    delayed = {"anneal": "the penalty's weight λ"}
    restarts = ("anneal",)

    class Config(BaseConfig):
        lam: float = search(10.0, log_uniform(1e-1, 1e5), help="penalty weight λ", domainbed="vrex_lambda", ge=0)
        anneal: int = search(
            500,
            log_uniform(1, 1e4, integer=True),
            help="step from which the weight is λ instead of 1",
            domainbed="vrex_penalty_anneal_iters",
            ge=0,
        )

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        L = domain_risks(map(self.classifier, self.encode(batches)), batches)  # (k,)
        risk, variance = L.mean(), L.var(correction=0)
        weight = self.config.lam if self.updates >= self.config.anneal else 1.0
        return {"loss": risk + weight * variance, "risk": risk, "variance": variance}
