from collections.abc import Iterable

import torch
from torch import Tensor

from fgmix.algorithms import Algorithm, BaseConfig, Batches, log_uniform, register, search
from fgmix.algorithms.irm import invariance_penalty
from fgmix.functional import require_two, widen
from fgmix.functional.domains import domain_risks


class IBConfig(BaseConfig):
    """Settings of the bottleneck."""

    ib_lam: float = search(
        100.0, log_uniform(1e-1, 1e5), help="weight λ of the bottleneck", domainbed="ib_lambda", ge=0
    )
    ib_anneal: int = search(
        500,
        log_uniform(1, 1e4, integer=True),
        help="step from which the bottleneck's weight is λ instead of 0",
        domainbed="ib_penalty_anneal_iters",
        ge=0,
    )


class IBIRMConfig(IBConfig):
    """… and those of IRM's penalty."""

    irm_lam: float = search(
        100.0, log_uniform(1e-1, 1e5), help="weight κ of IRM's penalty", domainbed="irm_lambda", ge=0
    )
    irm_anneal: int = search(
        500,
        log_uniform(1, 1e4, integer=True),
        help="step from which the weight of IRM's penalty is κ instead of 1",
        domainbed="irm_penalty_anneal_iters",
        ge=0,
    )


@register("ib_erm")
class IBERM(Algorithm):
    """Information bottleneck: penalise the variance of the codes within a source domain.

        L = mean_e L_e + λ_t · mean_e mean_j var z_{e,j}

    with L_e the cross-entropy of domain e and var z_{e,j} the variance (n − 1) of coordinate j of its codes, which
    bounds their entropy. λ_t = 0 before step `ib_anneal`, λ from then on; at that step Adam is reset, because the
    magnitude of the gradients changes abruptly.

    Ahuja et al., "Invariance Principle Meets Information Bottleneck for Out-of-Distribution Generalization", 2021,
    https://arxiv.org/abs/2106.06607. Variant: DomainBed's, the variance of the codes within each domain.
    """

    label = "IB-ERM"
    family = "penalty"
    cost = 1.0
    targets = "soft"
    domainbed_name = "IB_ERM"
    delayed = {"ib_anneal": "the bottleneck"}
    restarts = ("ib_anneal",)

    Config = IBConfig

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        z = self.encode(batches)  # k tensors (b, d), one forward pass
        risk, variance = domain_risks(map(self.classifier, z), batches).mean(), mean_variance(z)
        weight = self.config.ib_lam if self.updates >= self.config.ib_anneal else 0.0
        return {"loss": risk + weight * variance, "risk": risk, "variance": variance}


@register("ib_irm")
class IBIRM(Algorithm):
    """IRM with an information bottleneck: invariant features of low variance.

        L = mean_e L_e + κ_t · mean_e G_{e,even} · G_{e,odd} + λ_t · mean_e mean_j var z_{e,j}

    with the penalty of IRM (see `irm`) and the bottleneck of IB-ERM (see `ib_erm`). κ_t = 1 before step `irm_anneal`,
    κ from then on; λ_t = 0 before step `ib_anneal`, λ from then on; Adam is reset at either step.

    Ahuja et al., "Invariance Principle Meets Information Bottleneck for Out-of-Distribution Generalization", 2021,
    https://arxiv.org/abs/2106.06607. Variant: DomainBed's.
    """

    label = "IB-IRM"
    family = "penalty"
    cost = 1.0
    domainbed_name = "IB_IRM"
    delayed = {"ib_anneal": "the bottleneck", "irm_anneal": "the weight κ of IRM's penalty"}
    restarts = ("ib_anneal", "irm_anneal")

    Config = IBIRMConfig

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        z = self.encode(batches)  # k tensors (b, d), one forward pass
        logits = [self.classifier(z_e) for z_e in z]
        risk, variance = domain_risks(logits, batches).mean(), mean_variance(z)
        penalty = torch.stack([invariance_penalty(o, y) for o, (_, y) in zip(logits, batches)]).mean()
        kappa = self.config.irm_lam if self.updates >= self.config.irm_anneal else 1.0
        lam = self.config.ib_lam if self.updates >= self.config.ib_anneal else 0.0
        loss = risk + kappa * penalty + lam * variance
        return {"loss": loss, "risk": risk, "penalty": penalty, "variance": variance}


def mean_variance(z: Iterable[Tensor]) -> Tensor:
    """Compute mean_e mean_j var z_{e,j} of codes z_e (b_e, d), at least two per domain.

    >>> mean_variance([torch.tensor([[0.0, 1.0], [2.0, 1.0]])]).item()
    1.0
    """
    z = list(z)
    require_two(min(map(len, z)), "A variance")
    return torch.stack([widen(z_e).var(0).mean() for z_e in z]).mean()
