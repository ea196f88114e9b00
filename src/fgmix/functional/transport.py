"""Entropic optimal transport between two batches of codes, by Sinkhorn's iteration in the log domain."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fgmix.functional import require_two, widen


def cosine_cost(a: Tensor, b: Tensor) -> Tensor:
    """Compute c_ij = 1 − cos(a_i, b_j) of codes (…, n, d) and (…, m, d), as (…, n, m).

    >>> cosine_cost(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])).tolist()
    [[0.0, 1.0, 2.0]]
    """
    return 1 - normalize(a, dim=-1) @ normalize(b, dim=-1).transpose(-2, -1)


@torch.no_grad()
def sinkhorn_plan(cost: Tensor, eps: float = 0.05, iterations: int = 20) -> Tensor:
    """Return the plan P that minimises Σ P∘c − ε·H(P) among those with uniform marginals 1/n and 1/m.

        u_i ← −log n − log Σ_j exp(v_j − c_ij/ε),   v_j ← −log m − log Σ_i exp(u_i − c_ij/ε),
        P_ij = exp(u_i + v_j − c_ij/ε)

    P is a constant: by the envelope theorem the gradient of the regularised optimum with respect to the cost is P
    itself. (That of Σ P∘c alone is not, because the plan depends on the cost.) At ε = 0.05 and costs up to 1, 20
    iterations reduce the error of the row sums to 4e-9 for 32 random non-negative codes in R^64. ε = 1 would blur the
    plan: the cost between a batch and itself would be almost that between two batches.

    Cuturi, "Sinkhorn Distances", 2013, https://arxiv.org/abs/1306.0895.

    Leading dimensions of c (…, n, m) are independent problems, solved together. Column sums of P are exact, row sums
    converge.

    >>> sinkhorn_plan(1 - torch.eye(2), eps=1.0, iterations=1).sum(0).tolist()
    [0.5, 0.5]
    """
    n, m = cost.shape[-2:]
    log_kernel = -cost / eps
    v = log_kernel.new_zeros(*cost.shape[:-2], 1, m)
    for _ in range(iterations):
        u = -math.log(n) - torch.logsumexp(log_kernel + v, -1, keepdim=True)  # (…, n, 1)
        v = -math.log(m) - torch.logsumexp(log_kernel + u, -2, keepdim=True)  # (…, 1, m)
    return torch.exp(log_kernel + u + v)


def transport_cost(a: Tensor, b: Tensor, *, eps: float = 0.05, iterations: int = 20) -> Tensor:
    """Compute W(a, b) = Σ P∘c with c the cosine cost and P its `sinkhorn_plan`; differentiated through c alone.

    Half precision is widened to float32, even under autocast: c/ε reaches 40, where the resolution of bfloat16 is ¼.

    a (…, n, d) and b (…, m, d) are codes; W (…) is between 0 and 2.

    >>> e1 = torch.tensor([[1.0, 0.0]])
    >>> transport_cost(e1, -e1).item()
    2.0
    """
    with torch.autocast(a.device.type, enabled=False):
        cost = cosine_cost(widen(a), widen(b))
        return (sinkhorn_plan(cost, eps, iterations) * cost).sum((-2, -1))


def energy_distance(a: Tensor, b: Tensor, *, eps: float = 0.05, iterations: int = 20) -> Tensor:
    """Estimate the energy distance 2·E W(A, B) − E W(A, A') − E W(B, B') of independent batches from two batches.

        d(a, b) = W(a₁, b₂) + W(b₁, a₂) − W(a₁, a₂) − W(b₁, b₂),   a = [a₁, a₂],  b = [b₁, b₂]

    Without the last two terms the distance would depend on the spread and not vanish between equal distributions. They
    must come from independent batches: W(a, a) of a batch with itself is nearly zero whatever its spread, because the
    plan matches every code with itself. Halves are compared crosswise because b_i may be generated from a_i (an image
    from its original), so that a₁ and b₁ are not independent; for b = a the result is exactly zero. A single value may
    be negative; its expectation is not.

    Salimans et al., "Improving GANs Using Optimal Transport", 2018, equation 8, https://arxiv.org/abs/1803.05573.

    a (…, n, d) and b (…, m, d) are at least two codes each; d (…) is between −4 and 4.

    >>> e1 = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> energy_distance(e1, -e1).item(), energy_distance(e1, e1).item()
    (4.0, 0.0)
    """
    require_two(min(a.shape[-2], b.shape[-2]), "An energy distance, which compares the halves of its batches,")

    def w(p: Tensor, q: Tensor) -> Tensor:
        return transport_cost(p, q, eps=eps, iterations=iterations)

    (a_1, a_2), (b_1, b_2) = a.tensor_split(2, -2), b.tensor_split(2, -2)
    return w(a_1, b_2) + w(b_1, a_2) - w(a_1, a_2) - w(b_1, b_2)
