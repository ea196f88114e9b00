"""Gradients of each domain, where their signs agree, and gradients in closed form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy

Pullback = Callable[[Tensor], Sequence[Tensor]]  # gradient in a result → gradients in what it was computed from


def domain_gradients(
    predict: Callable[[Tensor], Tensor],
    batches: Iterable[tuple[Tensor, Tensor]],
    parameters: Sequence[nn.Parameter],
) -> tuple[Tensor, list[list[Tensor]]]:
    """Compute the risk L_e and the gradient g_e = ∂L_e/∂θ of every domain.

    One forward and one backward pass per domain: together they process every sample once, as one joint pass does, while
    each of k backward passes through a joint graph would process all samples. Batch norm in training mode therefore
    uses the statistics of one domain at a time.

    Uses `backward`, not `torch.autograd.grad`: only the former gives a gradient the memory layout of its parameter
    (such as channels last), and the fused Adam reads both as flat memory.

    L (k,) is detached, and g has a list for each domain, in the order of the parameters θ. Their `.grad` is
    overwritten; a parameter that L_e does not depend on has gradient zero in g_e.

    >>> linear = nn.Linear(1, 2, bias=False)
    >>> L, g = domain_gradients(linear, [(torch.ones(1, 1), torch.tensor([0]))] * 3, list(linear.parameters()))
    >>> L.shape, len(g), g[0][0].shape
    (torch.Size([3]), 3, torch.Size([2, 1]))
    """
    L, g = [], []
    for x, y in batches:
        for p in parameters:
            p.grad = None
        risk = cross_entropy(predict(x), y)
        risk.backward()
        L.append(risk.detach())
        g.append([torch.zeros_like(p) if p.grad is None else p.grad for p in parameters])
    return torch.stack(L), g


def sign_agreement(g: list[list[Tensor]]) -> list[Tensor]:
    """Compute s = |mean_e sign g_e|, elementwise: 1 where the signs of all domains agree, 0 where they cancel.

    g has the gradients of all parameter tensors for each domain; s has one tensor for each of them.

    >>> sign_agreement([[torch.tensor([1.0, 1.0, -1.0])], [torch.tensor([2.0, -3.0, 0.0])]])[0].tolist()
    [1.0, 0.0, 0.5]
    """
    s = [g_p.sign() for g_p in g[0]]
    for g_e in g[1:]:
        for s_p, g_p in zip(s, g_e, strict=True):
            s_p.add_(g_p.sign())
    return [s_p.abs_().div_(len(g)) for s_p in s]


def masked_mean_(g: list[list[Tensor]], m: list[Tensor]) -> list[Tensor]:
    """Compute m ⊙ mean_e g_e / (mean(m) + 1e-10): the masked mean, divided by the share that passes the mask.

    Computed in place, in the memory of g[0]: on a CPU allocating a new tensor takes longer than filling it.

    m has one mask in [0, 1] for each parameter tensor; mean(m) is over one tensor.

    >>> g = [[torch.tensor([1.0, 1.0])], [torch.tensor([3.0, -1.0])]]
    >>> masked_mean_(g, [torch.tensor([1.0, 0.0])])[0].tolist()
    [4.0, 0.0]
    """
    passed = torch.stack([m_p.mean() for m_p in m])  # stays on the device: no synchronisation
    scales = (1 / (len(g) * (passed + 1e-10))).unbind()
    for (total, *others), m_p, scale in zip(zip(*g), m, scales, strict=True):
        for g_p in others:
            total.add_(g_p)
        total.mul_(m_p).mul_(scale)
    return g[0]


def share_passed(m: list[Tensor]) -> Tensor:
    """Return the mean over all elements of all masks.

    >>> share_passed([torch.tensor([1.0, 0.0, 0.0]), torch.tensor(1.0)]).item()
    0.5
    """
    return torch.stack([m_p.sum() for m_p in m]).sum() / sum(m_p.numel() for m_p in m)


class _WithGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, pull: Pullback, *inputs: Tensor) -> Tensor:  # noqa: ARG004
        ctx.pull = pull
        return value.view_as(value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        with torch.autocast(upstream.device.type, enabled=False):  # a step calls `backward` within its own autocast
            return None, None, *ctx.pull(upstream)


def with_gradients(inputs: Sequence[Tensor], value: Tensor, pull: Pullback) -> Tensor:
    """Return a value whose gradients in the inputs are known: a closed form costs a third of what autograd records and
    replays. `pull` maps the gradient in the value to those in the inputs.

    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> with_gradients([x], torch.tensor(5.0), lambda g: [g * 2 * x.detach()]).backward()
    >>> x.grad
    tensor([2., 4.])
    """
    result: Tensor = _WithGradients.apply(value.detach(), pull, *inputs)  # type: ignore[no-untyped-call]
    return result
