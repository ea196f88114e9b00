import torch
from torch import Tensor

from fgmix.algorithms import Algorithm, BaseConfig, Batches, log_uniform, register, search
from fgmix.functional import require_two, widen
from fgmix.functional.domains import domain_risks


@register("irm")
class IRM(Algorithm):
    """Learn features on which one classifier is optimal in every source domain at once.

        L = mean_e L_e + λ_t · mean_e G_{e,even} · G_{e,odd}
        G = ∂/∂w mean_i l(y_i, w·o_i) at w = 1  =  mean_i (p_iᵀ o_i − o_{i,y_i}),    p_i = softmax(o_i)

    with L_e the cross-entropy of domain e, o_i the logits and G_{e,even}, G_{e,odd} the gradients on the even and the
    odd samples of its batch. Their product is an unbiased estimate of the squared gradient of IRMv1; it may be
    negative. With the closed form of G no second derivative is taken. λ_t = 1 before step `anneal`, λ from then on; at
    that step Adam is reset, because the magnitude of the gradients changes abruptly.

    Arjovsky et al., "Invariant Risk Minimization", 2019, https://arxiv.org/abs/1907.02893. Variant: DomainBed's.
    """

    label = "IRM"
    family = "penalty"
    cost = 1.0
    domainbed_name = "IRM"
    delayed = {"anneal": "the penalty's weight λ"}
    restarts = ("anneal",)

    class Config(BaseConfig):
        lam: float = search(100.0, log_uniform(1e-1, 1e5), help="penalty weight λ", domainbed="irm_lambda", ge=0)
        anneal: int = search(
            500,
            log_uniform(1, 1e4, integer=True),
            help="step from which the weight is λ instead of 1",
            domainbed="irm_penalty_anneal_iters",
            ge=0,
        )

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        logits = [self.classifier(z_e) for z_e in self.encode(batches)]
        risk = domain_risks(logits, batches).mean()
        penalty = torch.stack([invariance_penalty(o, y) for o, (_, y) in zip(logits, batches)]).mean()
        weight = self.config.lam if self.updates >= self.config.anneal else 1.0
        return {"loss": risk + weight * penalty, "risk": risk, "penalty": penalty}


def invariance_penalty(o: Tensor, y: Tensor) -> Tensor:
    """Compute G_even · G_odd, with G the gradient of the mean cross-entropy of w·o with respect to w at w = 1.

    o (b, C) are the logits of at least two samples, y (b,) their labels.

    >>> invariance_penalty(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])).item()
    0.0
    """
    require_two(len(y), "irm, which splits the batch of each domain,")
    o = widen(o)
    gradient = (o.softmax(1) * o).sum(1) - o.gather(1, y[:, None]).squeeze(1)
    return gradient[::2].mean() * gradient[1::2].mean()
