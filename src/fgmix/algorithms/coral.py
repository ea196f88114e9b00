from torch import Tensor

from fgmix.algorithms import Algorithm, BaseConfig, Batches, log_uniform, register, search
from fgmix.functional.domains import domain_risks
from fgmix.functional.moments import moment_distance


@register("coral")
class CORAL(Algorithm):
    """Match mean and covariance of the codes of every pair of source domains.

        L = mean_e L_e + γ · mean_{i<j} ( mean (μ_i − μ_j)² + mean (C_i − C_j)² )

    with L_e the cross-entropy of domain e, and μ_e and C_e the mean and covariance (n − 1) of its codes.

    Sun and Saenko, "Deep CORAL: Correlation Alignment for Deep Domain Adaptation", 2016,
    https://arxiv.org/abs/1607.01719. Variant: DomainBed's, which adds the means to the covariances and aligns
    every pair of source domains.
    """

    label = "CORAL"
    family = "alignment"
    cost = 1.0
    min_domains = 2
    targets = "soft"
    domainbed_name = "CORAL"

    class Config(BaseConfig):
        gamma: float = search(
            1.0, log_uniform(1e-1, 1e1), help="weight γ of the alignment", domainbed="mmd_gamma", ge=0
        )

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        z = self.encode(batches, alone=True)  # k tensors (b, d)
        risk = domain_risks(map(self.classifier, z), batches).mean()
        gap = moment_distance(z)
        return {"loss": risk + self.config.gamma * gap, "risk": risk, "gap": gap}
