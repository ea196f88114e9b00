"""CORAL: match the first two moments of every pair of source domains.

    L = mean_e L_e + γ · mean_{i<j} ( mean (μ_i − μ_j)² + mean (C_i − C_j)² )

with μ_e and C_e the mean and the covariance (n − 1) of domain e's codes.

Sun and Saenko, "Deep CORAL", 2016. Variant: DomainBed's, which adds the means to the covariances and takes every pair
of sources.
"""

from __future__ import annotations

from torch import Tensor

from fgmix.algorithms._base import Algorithm, Batches
from fgmix.algorithms._config import BaseConfig, log_uniform, search
from fgmix.algorithms._registry import register
from fgmix.functional.domains import domain_risks, mean_over_pairs
from fgmix.functional.moments import moment_distance, moments


@register("coral")
class CORAL(Algorithm):
    """ERM plus the distance of the domains' moments; with one domain there is no pair, and it is ERM."""

    label = "CORAL"
    year = 2016
    paper = "https://arxiv.org/abs/1607.01719"
    domainbed_name = "CORAL"

    class Config(BaseConfig):
        gamma: float = search(1.0, log_uniform(1e-1, 1e1), help="weight γ of the alignment", domainbed="mmd_gamma")

    config: Config  # narrows the base's type

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        z = self.encode(batches)  # k tensors (b, d), one forward pass
        risk = domain_risks(map(self.classifier, z), batches).mean()
        gap = mean_over_pairs(moment_distance, [moments(z_e) for z_e in z])
        return {"loss": risk + self.config.gamma * gap, "risk": risk, "gap": gap}
