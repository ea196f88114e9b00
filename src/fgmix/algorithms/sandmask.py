from collections.abc import Sequence

from torch import Tensor

from fgmix.algorithms import Algorithm, BaseConfig, Batches, descend_along, log_uniform, register, search, uniform
from fgmix.functional.gradients import domain_gradients, masked_mean_, share_passed, sign_agreement


@register("sandmask")
class SANDMask(Algorithm):
    """AND-Mask with a soft mask that also requires the domains' gradients to be similar in value.

        s = |mean_e sign g_e|,    m = max(0, tanh(κ (s − τ) / var_e g_e)),    ∇ = m ⊙ mean_e g_e / (mean(m) + 1e-10)

    elementwise, with g_e = ∂L_e/∂θ the gradient of domain e's mean cross-entropy, var_e the unbiased variance over the
    domains, and mean(m) taken over one parameter tensor. Where m is 0/0 (s = τ, zero variance), it is set to 1e-17.

    Shahtalebi et al., "SAND-mask: An Enhanced Gradient Masking Strategy for the Discovery of Invariances in Domain
    Generalization", 2021, https://arxiv.org/abs/2106.02266. Variant: DomainBed's, but τ = 0.5: at its default τ = 1 the
    mask is zero, because s never exceeds 1.
    """

    label = "SAND-Mask"
    family = "gradient"
    cost = 1.0
    targets = "weighted"
    domainbed_name = "SANDMask"
    min_domains = 2  # one domain has no variance

    class Config(BaseConfig):
        tau: float = search(
            0.5, uniform(0.0, 1.0), help="agreement τ above which an element is updated; at 1 none is", ge=0, le=1
        )
        kappa: float = search(
            10.0, log_uniform(1e-3, 1e5), help="steepness κ of the mask (the paper's k)", domainbed="k", gt=0
        )

    def update(self, batches: Batches) -> dict[str, Tensor]:
        theta = [p for p in self.parameters() if p.requires_grad]
        L, g = domain_gradients(self.predict, batches, theta)
        m = soft_mask(g, self.config.tau, self.config.kappa)
        descend_along(self.optimizer, theta, masked_mean_(g, m))
        return {"loss": L.mean(), "passed": share_passed(m)}


def soft_mask(g: list[list[Tensor]], tau: float, kappa: float) -> list[Tensor]:
    """Compute m = max(0, tanh(κ (s − τ) / var_e g_e)).

    g has the gradients of all parameter tensors for each of at least two domains.

    >>> import torch
    >>> soft_mask([[torch.tensor([1.0, 1.0])], [torch.tensor([1.0, -1.0])]], tau=0.5, kappa=10.0)[0].tolist()
    [1.0, 0.0]
    """
    return [
        s_p.sub_(tau).mul_(kappa).div_(variance(g_p)).tanh_().clamp_min_(0.0).nan_to_num_(nan=1e-17)
        for s_p, g_p in zip(sign_agreement(g), zip(*g), strict=True)
    ]


def variance(g: Sequence[Tensor]) -> Tensor:
    """Compute var_e g_e, unbiased, of one parameter tensor.

    In place where possible: `torch.var` of the stacked gradients would copy them.

    >>> import torch
    >>> variance([torch.tensor([1.0, 1.0]), torch.tensor([1.0, -1.0])]).tolist()
    [0.0, 2.0]
    """
    mean = g[0] + g[1]
    for g_e in g[2:]:
        mean.add_(g_e)
    mean.div_(len(g))
    total, *others = (g_e.sub(mean).square_() for g_e in g)
    for square in others:
        total.add_(square)
    return total.div_(len(g) - 1)
