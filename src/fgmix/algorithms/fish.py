"""Fish: match the domains' gradients, by steps on one domain after the other and a move towards where they end.

    θ̃ ← θ;   for each domain e in turn:   θ̃ ← Adam(θ̃, ∂L_e(θ̃)/∂θ̃);      θ ← θ + η (θ̃ − θ)

To second order in the inner learning rate the move raises the inner products of the domains' gradients. The inner Adam
keeps its moments from step to step. The inner steps are taken by the network itself: θ is set aside as a list of
tensors and no second network is built.

Shi et al., "Gradient Matching for Domain Generalization", 2022. Variant: DomainBed's, which visits all domains in their
own order (the paper's random order: `shuffle`) and moves by η, not by η divided by the number of inner steps.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fgmix.algorithms._base import Algorithm, Batches
from fgmix.algorithms._config import BaseConfig, choice, search, setting
from fgmix.algorithms._registry import register
from fgmix.errors import bad_value


@register("fish")
class Fish(Algorithm):
    """Sequential training on the domains, damped by η."""

    label = "Fish"
    year = 2022
    paper = "https://arxiv.org/abs/2104.09937"
    domainbed_name = "Fish"

    class Config(BaseConfig):
        eta: float = search(
            0.5, choice(0.05, 0.1, 0.5), help="share η of the way to the inner steps' end", domainbed="meta_lr"
        )
        shuffle: bool = setting(False, help="visit the domains in a fresh random order, as the paper does")

        def __post_init__(self) -> None:
            super().__post_init__()
            if not 0 <= self.eta <= 1:
                raise bad_value("eta", "between 0 and 1", self.eta)

    config: Config  # narrows the base's type

    def update(self, batches: Batches) -> dict[str, Tensor]:
        live = self.weights()
        theta = [t.clone() for t in live]
        order = torch.randperm(len(batches)).tolist() if self.config.shuffle else range(len(batches))
        L = [self.inner_step(*batches[e]) for e in order]
        torch._foreach_lerp_(live, theta, 1 - self.config.eta)  # θ̃ + (1 − η)(θ − θ̃) = θ + η(θ̃ − θ)
        return {"loss": torch.stack(L).mean()}

    def weights(self) -> list[Tensor]:
        """What is moved: parameters, and batch-norm's running averages (its integer counters run on)."""
        return [t.detach() for t in (*self.parameters(), *self.buffers()) if t.is_floating_point()]

    def inner_step(self, x: Tensor, y: Tensor) -> Tensor:
        """One Adam step on one domain; its risk before the step."""
        risk = cross_entropy(self.predict(x), y)
        self.optimizer.zero_grad(set_to_none=True)
        risk.backward()
        self.optimizer.step()
        return risk.detach()
