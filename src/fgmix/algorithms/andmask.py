from torch import Tensor

from fgmix.algorithms import Algorithm, BaseConfig, Batches, descend_along, register, search, uniform
from fgmix.functional.gradients import domain_gradients, masked_mean_, share_passed, sign_agreement


@register("andmask")
class ANDMask(Algorithm):
    """Follow the mean gradient only where the source domains agree on its sign.

        s = |mean_e sign g_e|,    m = 1[s ≥ τ],    ∇ = m ⊙ mean_e g_e / (mean(m) + 1e-10)

    elementwise, with g_e = ∂L_e/∂θ the gradient of domain e's mean cross-entropy and mean(m) taken over one parameter
    tensor: the fewer elements agree, the larger the update of those that do. At τ = 1 all domains must agree.

    Parascandolo et al., "Learning Explanations that are Hard to Vary", 2021, https://arxiv.org/abs/2009.00329.
    Variant: DomainBed's, with the rescaling by mean(m), which the authors leave optional, and one forward pass per
    domain.
    """

    label = "AND-Mask"
    family = "gradient"
    cost = 1.0
    min_domains = 2
    targets = "weighted"
    domainbed_name = "ANDMask"

    class Config(BaseConfig):
        tau: float = search(1.0, uniform(0.5, 1.0), help="agreement τ from which an element is updated", ge=0, le=1)

    def update(self, batches: Batches) -> dict[str, Tensor]:
        theta = [p for p in self.parameters() if p.requires_grad]
        L, g = domain_gradients(self.predict, batches, theta)
        m = [s.ge_(self.config.tau) for s in sign_agreement(g)]
        descend_along(self.optimizer, theta, masked_mean_(g, m))
        return {"loss": L.mean(), "passed": share_passed(m)}
