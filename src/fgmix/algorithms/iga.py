import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm, BaseConfig, Batches, log_uniform, register, search
from fgmix.functional.domains import scatter


@register("iga")
class IGA(Algorithm):
    """Inter-environmental gradient alignment: penalise the variance of the source domains' gradients.

        L = mean_e L_e + λ · Σ_e ‖g_e − ḡ‖²,    g_e = ∂L_e/∂θ,  ḡ = mean_e g_e constant

    with L_e the cross-entropy of domain e and θ all parameters. The penalty is k times the trace of the gradients'
    covariance; it is differentiated through the backward passes.

    Koyama and Yamaguchi, "When is invariance useful in an Out-of-Distribution Generalization problem?", 2020,
    https://arxiv.org/abs/2008.01883. Variant: DomainBed's, a sum over domains (the paper has a mean) and ḡ constant.
    """

    label = "IGA"
    family = "gradient"
    cost = 3.01
    min_domains = 2
    targets = "weighted"
    domainbed_name = "IGA"

    class Config(BaseConfig):
        lam: float = search(1000.0, log_uniform(1e1, 1e5), help="penalty weight λ", domainbed="penalty", ge=0)

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        theta = [p for p in self.parameters() if p.requires_grad]
        # One forward pass per domain: k backward passes through a joint graph would each process all samples.
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernels of attention have no second derivative
            L = [cross_entropy(self.predict(x), y) for x, y in batches]
        g = [torch.autograd.grad(L_e, theta, create_graph=True, materialize_grads=True) for L_e in L]
        penalty = torch.stack([scatter(of_one) for of_one in zip(*g)]).sum()
        risk = torch.stack(L).mean()
        return {"loss": risk + self.config.lam * penalty, "risk": risk, "penalty": penalty}
