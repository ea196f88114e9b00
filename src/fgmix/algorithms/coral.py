"""The method CORAL."""

from torch import Tensor

from fgmix.algorithms._base import Algorithm, Batches
from fgmix.algorithms._config import BaseConfig, log_uniform, search
from fgmix.algorithms._registry import register
from fgmix.functional.domains import domain_risks
from fgmix.functional.moments import moment_distance


@register("coral")
class CORAL(Algorithm):
    """Match mean and covariance of the codes of every pair of source domains.

        L = mean_e L_e + γ · mean_{i<j} ( mean (μ_i − μ_j)² + mean (C_i − C_j)² )

    with L_e the cross-entropy of domain e, and μ_e and C_e the mean and covariance (n − 1) of its codes. With one
    domain there is no pair, and it is ERM.

    Sun and Saenko, "Deep CORAL: Correlation Alignment for Deep Domain Adaptation", 2016,
    https://arxiv.org/abs/1607.01719. Variant: DomainBed's, which adds the means to the covariances and aligns
    every pair of source domains.
    """

    label = "CORAL"
    year = 2016
    paper = "https://arxiv.org/abs/1607.01719"
    family = "alignment"
    cost = 1.0
    domainbed_name = "CORAL"

    class Config(BaseConfig):
        gamma: float = search(
            1.0, log_uniform(1e-1, 1e1), help="weight γ of the alignment", domainbed="mmd_gamma", ge=0
        )

    config: Config  # narrows the base's type

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        z = self.encode(batches, alone=True)  # k tensors (b, d)
        risk = domain_risks(map(self.classifier, z), batches).mean()
        gap = moment_distance(z)
        return {"loss": risk + self.config.gamma * gap, "risk": risk, "gap": gap}
