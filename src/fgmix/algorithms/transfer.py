import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from fgmix.algorithms._base import Algorithm, Batches, batch_of, descend
from fgmix.algorithms._config import BaseConfig, choice, log_uniform, search, uniform
from fgmix.algorithms._optimizer import DenseSGD
from fgmix.algorithms._registry import register
from fgmix.functional.domains import domain_risks


@register("transfer")
class Transfer(Algorithm):
    """Transferable features: no classifier near the trained one is much better on one source domain than on another.

        1.  g, h:  a step on CE(h(z), y)
        2.  g:     a step on λ · gap(h'),    gap(h') = max_e L_e(h') − min_e L_e(h')
        3.  h' ← h, then n steps of gradient ascent on λ · gap(h'), each projected to ‖h' − h‖ ≤ δ

    with L_e(h') the cross-entropy of domain e under the adversary h'. Step 2 uses the h' of the previous update, or a
    copy of the initial h. n is `d_steps`. Steps 1 and 2 are taken by one Adam, step 3 by SGD.

    Zhang et al., "Quantifying and Improving Transferability in Domain Generalization", 2021,
    https://arxiv.org/abs/2106.03632. Variant: DomainBed's, which is the authors'. With `gda` it passes the
    adversary's parameters to the optimiser of steps 1 and 2, so g and h are never trained; here SGD trains g and h.
    """

    label = "Transfer"
    family = "adversarial"
    cost = 2.33
    min_domains = 2
    targets = "weighted"
    domainbed_name = "Transfer"

    class Config(BaseConfig):
        lam: float = search(1.0, log_uniform(1e-2, 1e1), help="weight λ of the gap", domainbed="t_lambda", ge=0)
        delta: float = search(2.0, uniform(0.1, 3.0), help="radius δ of the adversary", ge=0)
        d_steps: int = search(
            10, choice(1, 2, 5), help="number n of the adversary's steps", domainbed="d_steps_per_g", ge=1
        )
        lr_d: float = search(1e-3, log_uniform(10**-4.5, 10**-2.5), help="learning rate of the adversary", gt=0)
        gda: bool = search(False, choice(True), help="SGD instead of Adam for g and h")

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        if config.gda:
            plain = {"momentum": 0.0, "weight_decay": 0.0}
            self.optimizer = DenseSGD([{**group, **plain} for group in self.optimizer.param_groups], lr=config.lr)
        self.adversary = copy.deepcopy(classifier).requires_grad_(True)  # h', also of a frozen h
        self.adversary_optimizer = SGD(self.adversary.parameters(), lr=config.lr_d)

    def update(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        risk = cross_entropy(self.predict(x), y)
        descend(self.optimizer, risk)
        descend(self.optimizer, self.weighted_gap(self.encode(batches, alone=True), batches))  # h has no gradient

        self.adversary.load_state_dict(self.classifier.state_dict())
        z: Sequence[Tensor] = ()
        for _ in range(self.config.d_steps):
            if not z or self.batch_norm_trains:  # g does not change, but each pass moves its running statistics
                with torch.no_grad():
                    z = self.encode(batches, alone=True)
            gap = self.weighted_gap(z, batches)
            descend(self.adversary_optimizer, -gap)
            project_(self.adversary, self.classifier, self.config.delta)
        return {"loss": risk, "gap": gap}

    def weighted_gap(self, z: Sequence[Tensor], batches: Batches) -> Tensor:
        """Compute λ · gap(h') of codes z, k tensors (b, d)."""
        L = domain_risks(map(self.adversary, z), batches)
        gap: Tensor = self.config.lam * (L.amax() - L.amin())
        return gap


@torch.no_grad()
def project_(moved: nn.Module, centre: nn.Module, delta: float) -> None:
    """Project the parameters of `moved` to the ball of radius δ around those of `centre`, in place.

    δ bounds the distance of all parameters together.

    >>> a, b = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.constant_(a.weight, 5.0), nn.init.zeros_(b.weight)
    >>> project_(a, b, delta=2.0)
    >>> a.weight.item()
    2.0
    """
    ours, theirs = [p.detach() for p in moved.parameters()], [p.detach() for p in centre.parameters()]
    distance = torch.stack([torch.linalg.vector_norm(a - b) for a, b in zip(ours, theirs)]).norm()
    share = (delta / distance).clamp(max=1)  # stays on the device
    for a, b in zip(ours, theirs):
        a.copy_(torch.where(share < 1, b + share * (a - b), a))
