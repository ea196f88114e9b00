"""SAM, around any method whose update is one objective, and the two gradients that SAGM also needs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fgmix.algorithms._base import Algorithm, Batches, descend_along
from fgmix.algorithms._config import BaseConfig, choice, search
from fgmix.algorithms._registry import register_wrapper

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
    year = 2021
    paper = "https://arxiv.org/abs/2010.01412"
    family = "flatness"
    cost = 2.0

    class Config(BaseConfig):
        sam_rho: float = search(
            0.05, None, paper=choice(0.01, 0.02, 0.05, 0.1), help="radius ρ of the neighbourhood", ge=0
        )

    config: Config  # narrows the base's type

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
    state, draws = _copy(_state(algorithm)), _get_random_states(batches[0][0].device)
    terms, w, g = _compute_gradients(algorithm, batches)
    s = scale(torch.linalg.vector_norm(torch.stack([g_i.norm() for g_i in g])) + EPSILON)
    with _move(w, [s * g_i for g_i in g]), _restore_state(algorithm, state):
        _replay(draws, batches[0][0].device)
        algorithm.optimizer.zero_grad(set_to_none=True)
        algorithm.backward(batches)
        g_near = [torch.zeros_like(w_i) if w_i.grad is None else w_i.grad for w_i in w]
    return terms, w, g, g_near


def _compute_gradients(
    algorithm: Algorithm, batches: Batches
) -> tuple[dict[str, Tensor], list[nn.Parameter], list[Tensor]]:
    """Return the terms of the objective, the optimiser's parameters that it depends on, and its gradients by them."""
    algorithm.optimizer.zero_grad(set_to_none=True)
    terms = algorithm.backward(batches)
    w = [w_i for group in algorithm.optimizer.param_groups for w_i in group["params"] if w_i.grad is not None]
    return terms, w, [w_i.grad for w_i in w]


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


def _get_random_states(device: torch.device) -> list[Tensor]:
    """Return the states of the generators that an objective may use: the CPU's and, on CUDA, the device's."""
    return [torch.get_rng_state()] + ([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])


def _replay(states: Sequence[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state, device)
