"""Two gradients of one objective, at the weights and at a nearby point: shared by SAM and SAGM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fgmix.algorithms._base import Algorithm, Batches

EPSILON = 1e-12  # added to ‖g‖, which may be zero


def two_gradients(
    algorithm: Algorithm, batches: Batches, scale: Callable[[Tensor], Tensor]
) -> tuple[dict[str, Tensor], list[nn.Parameter], list[Tensor], list[Tensor]]:
    """The terms of the objective at w, the weights w that have a gradient, g = ∇L(w) and ĝ = ∇L(w + s·g).

    L is the same function in both passes: the second uses the random numbers and starts from the state (running
    statistics, moving averages, heads that the objective itself trains) of the first. Afterwards the state is that
    after the first pass.

    Args:
        algorithm: provides the objective; the parameters of its optimiser are perturbed.
        batches: those of the step.
        scale: ‖g‖ → s.
    """
    state, draws = _copies(_state(algorithm)), _random_states(batches[0][0].device)
    terms = algorithm.objective(batches)
    w, g = _gradients(algorithm, terms["loss"])
    s = scale(torch.linalg.vector_norm(torch.stack([g_i.norm() for g_i in g])) + EPSILON)
    with _moved(w, [s * g_i for g_i in g]), _state_as_before(algorithm, state):
        _replay(draws, batches[0][0].device)
        near = algorithm.objective(batches)["loss"]
        algorithm.optimizer.zero_grad(set_to_none=True)
        near.backward()
        g_near = [torch.zeros_like(w_i) if w_i.grad is None else w_i.grad for w_i in w]
    return terms, w, g, g_near


def descend(algorithm: Algorithm, w: Sequence[nn.Parameter], direction: Sequence[Tensor]) -> None:
    """One step of the optimiser with `direction` as the gradient."""
    for w_i, direction_i in zip(w, direction, strict=True):
        w_i.grad = direction_i
    algorithm.optimizer.step()


def _gradients(algorithm: Algorithm, loss: Tensor) -> tuple[list[nn.Parameter], list[Tensor]]:
    """The optimiser's parameters that a loss depends on, and its gradients with respect to them."""
    algorithm.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    w = [w_i for group in algorithm.optimizer.param_groups for w_i in group["params"] if w_i.grad is not None]
    return w, [w_i.grad for w_i in w]


@contextmanager
def _moved(w: Sequence[Tensor], by: Sequence[Tensor]) -> Iterator[None]:
    """Within the block the weights are w + by; afterwards they are restored from a copy, bit for bit."""
    before = _copies(w)
    with torch.no_grad():
        for w_i, by_i in zip(w, by, strict=True):
            w_i.add_(by_i)
    yield
    _fill(w, before)


@contextmanager
def _state_as_before(algorithm: Algorithm, before: Sequence[Tensor]) -> Iterator[None]:
    """Within the block the state is that before the first pass; afterwards, that after it.

    Tensors are looked up each time, because a pass may replace a buffer's tensor.
    """
    after = _copies(_state(algorithm))
    _fill(_state(algorithm), before)
    yield
    _fill(_state(algorithm), after)


def _state(algorithm: Algorithm) -> Iterator[Tensor]:
    """What an objective itself may change: buffers, and parameters that no optimiser updates, such as TRM's heads."""
    yield from algorithm.buffers()
    yield from (parameter for parameter in algorithm.parameters() if not parameter.requires_grad)


def _copies(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


@torch.no_grad()
def _fill(tensors: Iterable[Tensor], values: Sequence[Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)


def _random_states(device: torch.device) -> list[Tensor]:
    """States of the generators that an objective may use: the CPU's and, on CUDA, the device's."""
    return [torch.get_rng_state()] + ([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])


def _replay(states: Sequence[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state, device)
