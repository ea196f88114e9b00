"""One step to a point nearby and back, on one flat vector of weights: the rule of SAM and SAGM."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Batches
from reference.pairs import mean_over_pairs, moment_distance
from reference.twin import Twin

Loss = Callable[[Twin, Batches], Tensor]


def erm(twin: Twin, batches: Batches) -> Tensor:
    x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    return cross_entropy(twin.h(twin.g(x)), y)


def coral(twin: Twin, batches: Batches) -> Tensor:
    z = [twin.g(x) for x, _ in batches]
    risks = [cross_entropy(twin.h(z_e), y) for z_e, (_, y) in zip(z, batches)]
    return sum(risks) / 3 + mean_over_pairs(moment_distance, z)


def neighbour_step(
    twin: Twin, batches: Batches, loss: Loss, scale: Callable[[Tensor], Tensor], combine: Callable[..., Tensor]
) -> None:
    """g, the gradient at w + s·g, and a step of the optimiser along what is made of both.

    Args:
        twin: moved.
        batches: of the step.
        loss: whose gradients they are.
        scale: ‖g‖ → s.
        combine: g and the gradient nearby → the direction.
    """
    w = [*twin.g.parameters(), *twin.h.parameters()]
    flat = nn.utils.parameters_to_vector(w).detach().clone()
    g = nn.utils.parameters_to_vector(torch.autograd.grad(loss(twin, batches), w))
    nn.utils.vector_to_parameters(flat + scale(g.pow(2).sum().sqrt()) * g, w)
    near = nn.utils.parameters_to_vector(torch.autograd.grad(loss(twin, batches), w))
    nn.utils.vector_to_parameters(flat, w)
    direction = combine(g, near)
    start = 0
    for w_i in w:
        w_i.grad = direction[start : start + w_i.numel()].view_as(w_i).clone()
        start += w_i.numel()
    twin.optimizer.step()
