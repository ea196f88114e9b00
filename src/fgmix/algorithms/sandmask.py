"""The method SAND-Mask."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fgmix.algorithms._base import Algorithm, Batches
from fgmix.algorithms._config import BaseConfig, log_uniform, search, uniform
from fgmix.algorithms._registry import register
from fgmix.functional.gradients import domain_gradients, masked_mean_, sign_agreement


@register("sandmask")
class SANDMask(Algorithm):
    """AND-Mask with a soft mask that also requires the domains' gradients to be of one size.

        s = |mean_e sign g_e|,    m = max(0, tanh(κ (s − τ) / var_e g_e)),    ∇ = m ⊙ mean_e g_e / (mean(m) + 1e-10)

    elementwise, with g_e = ∂L_e/∂θ the gradient of domain e's mean cross-entropy, var_e its unbiased variance over the
    domains, and mean(m) taken over one parameter tensor. A mask that is 0/0 (s = τ, no variance) counts as 1e-17.

    Shahtalebi et al., "SAND-mask: An Enhanced Gradient Masking Strategy for the Discovery of Invariances in Domain
    Generalization", 2021, https://arxiv.org/abs/2106.02266. Variant: DomainBed's, but τ = 0.5: at its default τ = 1 no
    mask is open, for s never exceeds 1.
    """

    label = "SAND-Mask"
    year = 2021
    paper = "https://arxiv.org/abs/2106.02266"
    domainbed_name = "SANDMask"
    min_domains = 2  # one domain has no variance

    class Config(BaseConfig):
        tau: float = search(
            0.5, uniform(0.0, 1.0), help="agreement τ above which an element is updated; at 1 none is", ge=0, le=1
        )
        kappa: float = search(
            10.0, log_uniform(1e-3, 1e5), help="steepness κ of the mask (the paper's k)", domainbed="k", gt=0
        )

    config: Config  # narrows the base's type

    def update(self, batches: Batches) -> dict[str, Tensor]:
        theta = [p for p in self.parameters() if p.requires_grad]
        L, g = domain_gradients(self.predict, batches, theta)
        passed = L.new_zeros(())
        for p, *g_p in zip(theta, *g):  # g_p: the k gradients of the tensor p
            m = soft_mask(g_p, self.config.tau, self.config.kappa)
            p.grad = masked_mean_(g_p, m)
            passed += m.sum()
        self.optimizer.step()
        return {"loss": L.mean(), "passed": passed / sum(p.numel() for p in theta)}


def soft_mask(g: Sequence[Tensor], tau: float, kappa: float) -> Tensor:
    """m = max(0, tanh(κ (s − τ) / var_e g_e)).

    Args:
        g: gradients of one parameter tensor, one for each of at least two domains.
        tau: τ.
        kappa: κ.

    Example:
        >>> soft_mask([torch.tensor([1.0, 1.0]), torch.tensor([1.0, -1.0])], tau=0.5, kappa=10.0).tolist()
        [1.0, 0.0]
    """
    mean = sum(g[1:], g[0]) / len(g)
    variance = sum((g_e - mean).square_() for g_e in g) / (len(g) - 1)
    m = torch.tanh(kappa * (sign_agreement(g) - tau) / variance)
    return m.clamp_(min=0).nan_to_num_(nan=1e-17)
