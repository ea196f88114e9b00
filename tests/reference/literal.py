"""A literal implementation of FGMix's policy step, for comparison in tests and benchmarks/policy.py.

Gradients are materialised, pairs concatenated, directions sampled in all P coordinates of the classifier. Slow on
purpose: nothing here may call the fast implementation.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy
from torch.optim import Adam


def gradients_by_loop(classifier: nn.Module, z: Tensor, y: Tensor) -> Tensor:
    """g_i = ∂l(y_i, h_φ(z_i))/∂φ (m, P), one backward pass per sample."""
    rows = []
    for z_i, y_i in zip(z.detach(), y):
        loss = cross_entropy(classifier(z_i.unsqueeze(0)), y_i.unsqueeze(0))
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(classifier.parameters()))]))
    return torch.stack(rows)


def gradients_by_func(classifier: nn.Module, z: Tensor, y: Tensor) -> Tensor:
    """The same (m, P), by `torch.func`."""

    def loss(phi: dict[str, Tensor], z_i: Tensor, y_i: Tensor) -> Tensor:
        return cross_entropy(functional_call(classifier, phi, (z_i.unsqueeze(0),)), y_i.unsqueeze(0))

    phi = {name: p.detach() for name, p in classifier.named_parameters()}
    gradients: dict[str, Tensor] = vmap(grad(loss), in_dims=(None, 0, 0))(phi, z.detach(), y)
    return torch.cat([g.flatten(1) for g in gradients.values()], 1)


def pair_scores(A: Callable[[Tensor], Tensor], g: Tensor) -> Tensor:
    """s_i = Σ_{j≠i} A([g_i ; g_j]) for tuples of vectors (n, k, P) → (n, k), every ordered pair concatenated."""
    n, k, _ = g.shape
    i, j = zip(*permutations(range(k), 2))
    pairs = torch.cat([g[:, list(i)], g[:, list(j)]], -1)  # (n, k(k−1), 2P)
    return A(pairs).view(n, k, k - 1).sum(2)


def flat_loss_along(classifier: nn.Module, z_mix: Tensor, y: Tensor, gamma: float, u: Tensor) -> Tensor:
    """mean_u (L(φ) − L(φ + γ u/‖u‖))² for directions u (S, P); differentiable in z_mix."""
    phi = {name: p.detach() for name, p in classifier.named_parameters()}
    sizes = [p.numel() for p in phi.values()]
    here = cross_entropy(functional_call(classifier, phi, (z_mix,)), y)
    squares = []
    for u_s in u:
        step = (gamma * u_s / u_s.norm()).split(sizes)
        moved = {name: p + block.view_as(p) for (name, p), block in zip(phi.items(), step)}
        squares.append((here - cross_entropy(functional_call(classifier, moved, (z_mix,)), y)).square())
    return torch.stack(squares).mean()


class LiteralPolicy(nn.Module):
    """A_ω, λ and the discriminator d with their losses and updates.

    Args:
        P: number of parameters of the classifier.
        code_size: size of the codes.
        lam, gamma, alpha, lr: as in `FGMix`.
    """

    def __init__(
        self, P: int, code_size: int, *, lam: float = 3.0, gamma: float = 10.0, alpha: float = 0.1, lr: float = 1e-3
    ) -> None:
        super().__init__()
        self.A = nn.Sequential(nn.Linear(2 * P, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.lam = nn.Parameter(torch.tensor(float(lam)))
        self.d = nn.Sequential(nn.Linear(code_size, 64), nn.ReLU(), nn.Linear(64, 1))
        self.gamma, self.alpha = gamma, alpha
        self.policy_optimizer = Adam([*self.A.parameters(), self.lam], lr=lr, fused=True)
        self.discriminator_optimizer = Adam(self.d.parameters(), lr=lr, fused=True)

    def mix(self, classifier: nn.Module, z: Tensor, y: Tensor) -> Tensor:
        """Mixed codes (n, d) of tuples z (n, k, d) with classes y (n,)."""
        n, k, _ = z.shape
        g = gradients_by_func(classifier, z.flatten(0, 1), y.repeat_interleave(k)).view(n, k, -1)
        a = torch.softmax(pair_scores(self.A, g), 1)
        weights = self.lam * a - (self.lam - 1) / k
        return (weights.unsqueeze(2) * z).sum(1)

    def losses(
        self, classifier: nn.Module, z_mix: Tensor, y: Tensor, u: Tensor, z_prior: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """L_flat, L_adv, and the losses of policy and discriminator, given directions u and codes of the prior."""
        flat = flat_loss_along(classifier, z_mix, y, self.gamma, u)
        adv = (1 - torch.sigmoid(self.d(z_mix))).log().mean()
        policy = (1 - self.alpha) * flat + self.alpha * adv
        fake, real = torch.sigmoid(self.d(z_mix.detach())), torch.sigmoid(self.d(z_prior))
        discriminator = -self.alpha * (real.log() + (1 - fake).log()).mean()
        return flat, adv, policy, discriminator

    def step(self, classifier: nn.Module, z: Tensor, y: Tensor, directions: int, z_prior: Tensor) -> None:
        """One simultaneous update of policy and discriminator, from tuples z (n, k, d) with classes y (n,)."""
        P = sum(p.numel() for p in classifier.parameters())
        *_, policy, discriminator = self.losses(
            classifier, self.mix(classifier, z, y), y, torch.randn(directions, P), z_prior
        )
        omega = [*self.A.parameters(), self.lam]
        d = list(self.d.parameters())
        for p, g in zip(omega, torch.autograd.grad(policy, omega)):
            p.grad = g
        for p, g in zip(d, torch.autograd.grad(discriminator, d)):
            p.grad = g
        self.policy_optimizer.step()
        self.discriminator_optimizer.step()
