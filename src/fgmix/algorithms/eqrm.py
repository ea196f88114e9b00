from statistics import NormalDist

import torch
from torch import Tensor

from fgmix.algorithms import Algorithm, BaseConfig, Batches, LogUniform, register, search, uniform
from fgmix.functional.domains import domain_risks

BISECTIONS = 32
TINY = 1e-30  # added to a variance: keeps the gradient of its root finite where all risks are equal


@register("eqrm")
class EQRM(Algorithm):
    """Empirical quantile risk minimization: minimise the α-quantile of the source domains' risks.

        L = mean_e L_e  before step `burn_in`,   F⁻¹(α)  from then on,    F(r) = 1/k Σ_e Φ((r − L_e)/s)

    with L_e the cross-entropy of domain e and F the distribution function of a Gaussian kernel density estimate of the
    risks, of bandwidth s = 1.06 · std(L) · k^(−1/5). The quantile lies between those of the kernels of the lowest and
    the highest risk, and bisection finds its relative position t,

        F⁻¹(α) = (1 − t) · min_e L_e + t · max_e L_e + s · Φ⁻¹(α),    t constant in the gradient

    At step `burn_in` Adam is reset and gets the learning rate `lr_after`.

    Eastwood et al., "Probable Domain Generalization via Quantile Risk Minimization", 2022, algorithm 1,
    https://arxiv.org/abs/2207.09944. Variant: DomainBed's, which is the authors'. It samples `burn_in` as a
    real number, for which Adam is never reset.
    """

    label = "EQRM"
    family = "robust"
    cost = 1.0
    targets = "weighted"
    domainbed_name = "EQRM"
    min_domains = 2
    delayed = {"burn_in": "the quantile"}
    restarts = ("burn_in",)

    class Config(BaseConfig):
        quantile: float = search(
            0.75, uniform(0.5, 0.99), help="α of the quantile", domainbed="eqrm_quantile", gt=0, lt=1
        )
        burn_in: float = search(
            2500.0,
            LogUniform(2.5, 3.5),
            help="step from which the quantile replaces the mean; Adam is reset there if it is an integer",
            domainbed="eqrm_burnin_iters",
            ge=0,
        )
        lr_after: float = search(
            1e-6, LogUniform(-7, -5), help="learning rate after the restart", domainbed="eqrm_lr", gt=0
        )

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        L = domain_risks(map(self.classifier, self.encode(batches, alone=True)), batches)  # (k,)
        risk = L.mean()
        loss = risk if self.updates < self.config.burn_in else kernel_quantile(L, self.config.quantile)
        return {"loss": loss, "risk": risk}


def kernel_quantile(L: Tensor, alpha: float) -> Tensor:
    """Return the α-quantile of a Gaussian kernel density estimate of L (k,), at least two numbers; in float64.

    Its position t between the extremes is constant in the gradient.

    >>> round(kernel_quantile(torch.tensor([1.0, 2.0, 3.0]), 0.5).item(), 6)  # symmetric: the median is the mean
    2.0
    """
    L = L.double()
    bandwidth = 1.06 * (L.var() + TINY).sqrt() * len(L) ** -0.2
    shift = bandwidth * NormalDist().inv_cdf(alpha)
    low, high = L.amin() + shift, L.amax() + shift
    return torch.lerp(low, high, _place(L.detach(), low.detach(), high.detach(), bandwidth.detach(), alpha))


def _place(L: Tensor, low: Tensor, high: Tensor, bandwidth: Tensor, alpha: float) -> Tensor:
    """Compute t in [0, 1] with F(low + t (high − low)) = α, by bisection on the device, without GPU synchronisation."""
    below, above = torch.zeros_like(low), torch.ones_like(low)
    for _ in range(BISECTIONS):
        t = (below + above) / 2
        too_high = torch.special.ndtr((torch.lerp(low, high, t) - L) / bandwidth).mean() > alpha  # F(…) > α
        below, above = torch.where(too_high, below, t), torch.where(too_high, t, above)
    return (below + above) / 2
