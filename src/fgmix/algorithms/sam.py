from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fgmix.algorithms import Algorithm, BaseConfig, Batches, choice, descend_along, register_wrapper, search

EPSILON = 1e-12  # added to ‖g‖, which may be zero


@register_wrapper("sam")
class SAM(Algorithm):
    """Sharpness-aware minimization: descend along the gradient at the nearby point of highest loss.

        ε̂ = ρ g/‖g‖,  g = ∇L(w);    w ← Adam(w, ∇L(w + ε̂))

    with w the trained weights and L the objective of the wrapped method: that of ERM in `sam`, that of CORAL in
    `sam+coral`. A step needs two forward and two backward passes.

    Foret et al., "Sharpness-Aware Minimization for Efficiently Improving Generalization", 2021,
    https://arxiv.org/abs/2010.01412. Variant: Adam instead of SGD; both passes use the same random numbers, and
    buffers keep the values of the first pass.
    """

    label = "SAM"
    family = "flatness"
    cost = 2.0

    class Config(BaseConfig):
        sam_rho: float = search(
            0.05, None, paper=choice(0.01, 0.02, 0.05, 0.1), help="radius ρ of the neighbourhood", ge=0
        )

    def update(self, batches: Batches) -> dict[str, Tensor]:
        terms, w, _, g_near = compute_two_gradients(self, batches, lambda norm: self.config.sam_rho / norm)
        descend_along(self.optimizer, w, g_near)
        return terms


def compute_two_gradients(
    algorithm: Algorithm, batches: Batches, scale: Callable[[Tensor], Tensor]
) -> tuple[dict[str, Tensor], list[nn.Parameter], list[Tensor], list[Tensor]]:
    """Return the terms of the objective at w, the weights w that have a gradient, g = ∇L(w) and ĝ = ∇L(w + s·g).

    L is the same function in both passes: the second uses the random numbers and starts from the state (running
    statistics, moving averages, heads that the objective itself trains) of the first. Afterwards the state is that
    after the first pass. The parameters of the algorithm's optimiser are perturbed; `scale` maps ‖g‖ to s.
    """
    state, optimizer, device = _copy(_state(algorithm)), algorithm.optimizer, batches[0][0].device
    optimizer.zero_grad(set_to_none=True)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        terms = algorithm.backward(batches)
    w = [w_i for group in optimizer.param_groups for w_i in group["params"] if w_i.grad is not None]
    g = [w_i.grad for w_i in w]
    s = scale(torch.linalg.vector_norm(torch.stack([g_i.norm() for g_i in g])) + EPSILON)
    with _move(w, [s * g_i for g_i in g]), _restore_state(algorithm, state):
        optimizer.zero_grad(set_to_none=True)
        algorithm.backward(batches)
        g_near = [torch.zeros_like(w_i) if w_i.grad is None else w_i.grad for w_i in w]
    return terms, w, g, g_near


@contextmanager
def _move(w: Sequence[Tensor], by: Sequence[Tensor]) -> Iterator[None]:
    """Move the weights to w + by within the block, then restore them from a copy, bit for bit."""
    before = _copy(w)
    with torch.no_grad():
        for w_i, by_i in zip(w, by, strict=True):
            w_i.add_(by_i)
    yield
    _fill(w, before)


@contextmanager
def _restore_state(algorithm: Algorithm, before: Sequence[Tensor]) -> Iterator[None]:
    """Restore the state before the first pass within the block, then that after it.

    Tensors are looked up each time, because a pass may replace a buffer's tensor.
    """
    after = _copy(_state(algorithm))
    _fill(_state(algorithm), before)
    yield
    _fill(_state(algorithm), after)


def _state(algorithm: Algorithm) -> Iterator[Tensor]:
    """Yield what an objective itself may change: buffers, and parameters without an optimiser, such as TRM's heads."""
    yield from algorithm.buffers()
    yield from (parameter for parameter in algorithm.parameters() if not parameter.requires_grad)


def _copy(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


@torch.no_grad()
def _fill(tensors: Iterable[Tensor], values: Sequence[Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)
