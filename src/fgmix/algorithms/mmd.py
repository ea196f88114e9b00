from torch import Tensor

from fgmix.algorithms import Algorithm, BaseConfig, Batches, log_uniform, register, search
from fgmix.functional.domains import domain_risks
from fgmix.functional.kernels import mmd


@register("mmd")
class MMD(Algorithm):
    """Match the code distributions of every pair of source domains by the maximum mean discrepancy.

        L = mean_e L_e + γ · mean_{i<j} MMD²(z_i, z_j)
        MMD²(x, y) = mean K(x, x) + mean K(y, y) − 2 mean K(x, y),    K(a, b) = Σ_s exp(−s ‖a − b‖²)

    with L_e the cross-entropy and z_e the codes of domain e, and s ∈ {1e-3, 1e-2, …, 1e3}.

    Li et al., "Domain Generalization with Adversarial Feature Learning", 2018,
    https://doi.org/10.1109/CVPR.2018.00566. Variant: DomainBed's, the alignment only, without the paper's autoencoder
    and adversarial prior.
    """

    label = "MMD"
    family = "alignment"
    cost = 1.0
    min_domains = 2
    targets = "soft"
    domainbed_name = "MMD"

    class Config(BaseConfig):
        gamma: float = search(
            1.0, log_uniform(1e-1, 1e1), help="weight γ of the alignment", domainbed="mmd_gamma", ge=0
        )

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        z = self.encode(batches, alone=True)  # k tensors (b, d)
        risk = domain_risks(map(self.classifier, z), batches).mean()
        gap = mmd(z)
        return {"loss": risk + self.config.gamma * gap, "risk": risk, "gap": gap}
