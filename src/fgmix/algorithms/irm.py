"""The method IRM."""

from __future__ import annotations

import torch
from torch import Tensor

from fgmix.algorithms._base import Algorithm, Batches
from fgmix.algorithms._config import BaseConfig, log_uniform, search
from fgmix.algorithms._registry import register
from fgmix.errors import UserError
from fgmix.functional.domains import domain_risks
from fgmix.functional.precision import widened


@register("irm")
class IRM(Algorithm):
    """Learn features on which one classifier is optimal in every source domain at once.

        L = mean_e L_e + λ_t · mean_e ‖∇_{w | w = 1} L_e(w · h(g(x)))‖²

    with L_e the cross-entropy of domain e and w a scale of the logits: IRMv1's penalty. The gradient's square is
    estimated without bias by the product of the gradients on the even and on the odd samples of the batch; it may be
    negative. Under cross-entropy, with logits o and p = softmax(o), the gradient has the closed form

        ∂_w l(y, w · o) at w = 1  =  pᵀo − o_y

    so that no second derivative is taken. λ_t = 1 before step `anneal`, λ from then on; Adam restarts at that step,
    because the gradient's size jumps.

    Arjovsky et al., "Invariant Risk Minimization", 2019, https://arxiv.org/abs/1907.02893. Variant: DomainBed's.
    """

    label = "IRM"
    year = 2019
    paper = "https://arxiv.org/abs/1907.02893"
    family = "penalty"
    cost = 1.0
    domainbed_name = "IRM"
    at_work = {"anneal": 0}
    delayed = {"anneal": "the penalty's weight λ"}

    class Config(BaseConfig):
        lam: float = search(100.0, log_uniform(1e-1, 1e5), help="penalty weight λ", domainbed="irm_lambda", ge=0)
        anneal: int = search(
            500,
            log_uniform(1, 1e4, integer=True),
            help="step from which the weight is λ instead of 1",
            domainbed="irm_penalty_anneal_iters",
            ge=0,
        )

    config: Config  # narrows the base's type

    def update(self, batches: Batches) -> dict[str, Tensor]:
        self.restart_adam_at(self.config.anneal)
        return super().update(batches)

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        logits = [self.classifier(z_e) for z_e in self.encode(batches)]
        risk = domain_risks(logits, batches).mean()
        penalty = torch.stack([invariance_penalty(o, y) for o, (_, y) in zip(logits, batches)]).mean()
        weight = self.config.lam if self.updates >= self.config.anneal else 1.0
        return {"loss": risk + weight * penalty, "risk": risk, "penalty": penalty}


def invariance_penalty(o: Tensor, y: Tensor) -> Tensor:
    """G_even · G_odd, with G the gradient of the mean cross-entropy of w · o in w at w = 1.

    Args:
        o: logits (b, C), at least two samples.
        y: labels (b,).

    Example:
        >>> invariance_penalty(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])).item()
        0.0
    """
    if len(y) < 2:
        raise UserError(
            "irm splits the batch of each domain, which needs at least 2 samples. Found 1. Raise the batch size."
        )
    o = widened(o)
    gradient = (o.softmax(1) * o).sum(1) - o.gather(1, y[:, None]).squeeze(1)
    return gradient[::2].mean() * gradient[1::2].mean()
