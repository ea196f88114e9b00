from collections.abc import Mapping, Sequence
from itertools import cycle

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm, BaseConfig, Batches, choice, descend_along, log_uniform, register, search
from fgmix.functional.mixup import cut_pair

EPS = 1e-8  # Adam's ε


@register("mldg")
class MLDG(Algorithm):
    """First-order meta-learning: a gradient step on one source domain should lower the loss on another.

    Each step splits the domains at random into `meta_test` meta-test domains and the meta-train domains, and pairs
    every meta-train domain i with a meta-test domain j, in turn:

        g_i = ∂L_i(θ)/∂θ,    θ_i = θ − α g_i / (|g_i| + ε),    g_j = ∂L_j(θ_i)/∂θ_i,      ∇ = 1/k Σ_(i,j) (g_i + β g_j)

    θ are all parameters, L_e is the cross-entropy of domain e, and the division is elementwise. θ_i is the result
    of the first step of a new Adam with the model's learning rate α: its bias-corrected moments are g_i and g_i². With
    another `optimizer` it is the first step of that one. First order: g_j ignores the dependence of θ_i on θ.

    Li et al., "Learning to Generalize: Meta-Learning for Domain Generalization", 2018,
    https://arxiv.org/abs/1710.03463. Variant: DomainBed's.
    """

    label = "MLDG"
    family = "meta-learning"
    cost = 0.67
    targets = "weighted"
    domainbed_name = "MLDG"
    min_domains = 2
    recomputable = False

    class Config(BaseConfig):
        beta: float = search(
            1.0, log_uniform(1e-1, 1e1), help="weight β of the meta-test gradient", domainbed="mldg_beta", ge=0
        )
        meta_test: int = search(
            2, choice(1, 2), help="number of meta-test domains in a step; at most k − 1", domainbed="n_meta_test", ge=1
        )

    def update(self, batches: Batches) -> dict[str, Tensor]:
        k, beta = len(batches), self.config.beta
        theta = {name: p for name, p in self.named_parameters() if p.requires_grad}
        # Sums with the memory layout of the parameters, on which the fused Adam relies.
        total = [torch.zeros_like(p) for p in theta.values()]
        loss = total[0].new_zeros(())
        for i, j in meta_pairs(k, self.config.meta_test):
            (x_i, y_i), (x_j, y_j) = cut_pair(batches[i], batches[j])
            L_i, g_i = self.risk_and_gradient(theta, x_i, y_i)
            theta_i = dict(zip(theta, self.take_first_step(list(theta.values()), g_i)))
            L_j, g_j = self.risk_and_gradient(theta_i, x_j, y_j)
            for sum_p, g_i_p, g_j_p in zip(total, g_i, g_j, strict=True):
                sum_p.add_(g_i_p, alpha=1 / k).add_(g_j_p, alpha=beta / k)
            loss += (L_i + beta * L_j) / k
        descend_along(self.optimizer, theta.values(), total)
        return {"loss": loss}

    def risk_and_gradient(self, theta: Mapping[str, Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Compute L and ∂L/∂θ on a batch (x, y), with θ, by name, as the network's parameters."""
        L = cross_entropy(functional_call(self, dict(theta), (x,)), y)
        return L.detach(), torch.autograd.grad(L, list(theta.values()), materialize_grads=True)

    @torch.no_grad()
    def take_first_step(self, theta: list[Tensor], g: Sequence[Tensor]) -> list[Tensor]:
        """Take the first step of a new optimiser of the same settings, with the rates and weight decays of the model.

        With Adam it is θ − α g / (|g| + ε), with weight decay added to the gradient g first.
        """
        groups = {id(p): group for group in self.optimizer.param_groups for p in group["params"]}
        return [self._move(p, g_p, **groups[id(p)]).requires_grad_() for p, g_p in zip(theta, g, strict=True)]

    def _move(self, p: Tensor, g_p: Tensor, *, lr: float, weight_decay: float, **_: object) -> Tensor:
        if self.config.optimizer == "adamw":
            p = p * (1 - lr * weight_decay)
        else:
            g_p = g_p.add(p, alpha=weight_decay)
        if self.config.optimizer == "sgd":
            return p.add(g_p, alpha=-lr)
        return p.addcdiv(g_p, g_p.abs().add_(EPS), value=-lr)


def meta_pairs(k: int, meta_test: int) -> list[tuple[int, int]]:
    """Draw pairs (i, j) of a meta-train and a meta-test domain from a random split; meta-test domains are used in turn.

    k is at least 2, and at least one domain is left for meta-train.

    >>> sorted(meta_pairs(2, meta_test=2)) in ([(0, 1)], [(1, 0)])
    True
    """
    n_train = max(k - meta_test, 1)
    order = torch.randperm(k).tolist()
    return list(zip(order[:n_train], cycle(order[n_train:])))
