import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm, BaseConfig, Batches, choice, descend, register, search, setting
from fgmix.functional import numbers


@register("fish")
class Fish(Algorithm):
    """Match the domains' gradients: one inner step per domain in turn, then a partial move to the end point.

        θ̃ ← θ;   for each domain e in turn:   θ̃ ← Adam(θ̃, ∂L_e(θ̃)/∂θ̃);      θ ← θ + η (θ̃ − θ)

    with L_e the cross-entropy of domain e. To second order in the inner learning rate, this increases the
    inner products of the domains' gradients. Adam keeps its moments from step to step. The inner steps update the
    network itself: θ is copied to a list of tensors, and no second network is built.

    Shi et al., "Gradient Matching for Domain Generalization", 2022, https://arxiv.org/abs/2104.09937. Variant:
    DomainBed's, which visits all domains in a fixed order (the paper's random order: `shuffle`) and does not divide η
    by the number of inner steps.
    """

    label = "Fish"
    family = "gradient"
    cost = 1.0
    min_domains = 2
    targets = "weighted"
    domainbed_name = "Fish"

    class Config(BaseConfig):
        eta: float = search(
            0.5,
            choice(0.05, 0.1, 0.5),
            help="share η of the way to the end point of the inner steps",
            domainbed="meta_lr",
            ge=0,
            le=1,
        )
        shuffle: bool = setting(False, help="visit the domains in a random order, as in the paper")

    def update(self, batches: Batches) -> dict[str, Tensor]:
        theta_inner = numbers(self)  # θ̃: the network's own tensors, which the optimiser updates
        theta = [t.clone() for t in theta_inner]
        order = torch.randperm(len(batches)).tolist() if self.config.shuffle else range(len(batches))
        L = []
        for e in order:
            x, y = batches[e]
            L_e = cross_entropy(self.predict(x), y)
            descend(self.optimizer, L_e)
            L.append(L_e.detach())
        for inner, start in zip(theta_inner, theta, strict=True):
            inner.lerp_(start, 1 - self.config.eta)  # θ̃ + (1 − η)(θ − θ̃) = θ + η(θ̃ − θ)
        return {"loss": torch.stack(L).mean()}
