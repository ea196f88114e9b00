"""Scores s_i = Σ_{j≠i} A(v_i, v_j) of the samples of a tuple, from their latent codes or classifier gradients.

A is the cosine, or the learned compatibility A_ω: [v_i ; v_j] → 64 → tanh → 64 → tanh → 1.

The gradient of one sample, g_i = ∂l(y_i, h_φ(z_i))/∂φ, has P elements (700,000 for DomainNet). For a linear head under
cross-entropy it is an outer product, g_i = δ_i ⊗ [z_i, 1] with δ = softmax − onehot, which need not be materialised:

- W g_i is a bilinear form in (δ_i, z_i);
- ⟨g_i, g_j⟩ = ⟨δ_i, δ_j⟩ (⟨z_i, z_j⟩ + 1);
- the first layer of A_ω on [g_i ; g_j] is W_a g_i + W_b g_j: each sample is projected once, not once per pair.

For other heads `torch.func` computes the gradients, one block for each parameter tensor of φ.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy, linear

from fgmix.mixing._heads import frozen_parameters, linear_head, linear_logits, set_evaluation_mode, unwrap

# Inputs of A_ω are clamped to this: tanh is saturated long before, and sums of P of them are still finite in float32.
_LARGEST = 1e30
# Up to this many elements gradients are cheaper to materialise: one matrix product takes two thirds of the time of the
# bilinear form at d = 96, C = 10, and the same time at d = 2048, C = 7.
_SMALL = 2**19


@dataclass(frozen=True)
class Vectors:
    """m vectors in R^P, given as blocks (m, P_1), (m, P_2), …: codes (one block) or gradients of any head."""

    blocks: tuple[Tensor, ...]

    def dense(self) -> Tensor:
        """Return the vectors themselves, (m, P)."""
        return torch.cat(self.blocks, 1)

    def norms(self) -> Tensor:
        """Compute ‖v‖ of each vector, (m, 1)."""
        return _norm(self.dense())

    def normalise(self) -> Vectors:
        """Divide each vector by its root mean square; a zero vector stays zero."""
        scale = math.sqrt(sum(block.shape[1] for block in self.blocks)) / self.norms()
        return Vectors(tuple(block * scale for block in self.blocks))

    def project(self, weights: Sequence[Tensor]) -> Tensor:
        """Compute W v for all vectors, (m, h), with W given in the same blocks (h, P_1), (h, P_2), …"""
        return reduce(torch.add, (linear(_cut(block), w) for block, w in zip(self.blocks, weights)))

    def cosines(self, position: Tensor) -> Tensor:
        """Return cosines between all members of each tuple, (n, k, k); `position` (n, k) indexes the vectors."""
        v = self.dense()
        return _gram((v / _norm(v))[position])


@dataclass(frozen=True)
class LinearGradients:
    """m gradients δ_i ⊗ [z_i, 1] of a linear head, stored as their factors. Same operations as `Vectors`.

    Coordinates follow `parameters()`: the weight row by row, then the bias.
    """

    delta: Tensor  # (m, C)
    z: Tensor  # (m, d)
    bias: bool

    def dense(self) -> Tensor:
        return self._materialise().dense()

    def norms(self) -> Tensor:
        return _norm(self.delta) * _norm(self._code())

    def normalise(self) -> LinearGradients:
        rms = self.norms() / math.sqrt(self.delta.shape[1] * (self.z.shape[1] + self.bias))
        return LinearGradients(self.delta / rms, self.z, self.bias)

    def hash(self, hashes: Tensor) -> LinearGradients:
        """Return (δ_i H) ⊗ [z_i, 1] with H (C, q) from `hash_classes`."""
        return LinearGradients(self.delta @ hashes, self.z, self.bias)

    def project(self, weights: Sequence[Tensor]) -> Tensor:
        (m, C), (h, size) = self.delta.shape, weights[0].shape
        if m * size <= _SMALL:
            return self._materialise().project(weights)
        # Codes first: intermediate results are (m, h·C), while gradients would be (m, C·d), with d > h.
        per_class = _ProjectCodes.apply(_cut(self.z), weights[0]).view(m, h, C)  # type: ignore[no-untyped-call]
        projected = torch.bmm(per_class, self.delta.unsqueeze(2)).squeeze(2)
        return projected + linear(self.delta, weights[1]) if self.bias else projected

    def cosines(self, position: Tensor) -> Tensor:
        code = self._code()
        return _gram((self.delta / _norm(self.delta))[position]) * _gram((code / _norm(code))[position])

    def _materialise(self) -> Vectors:
        weight = (self.delta.unsqueeze(2) * self.z.unsqueeze(1)).flatten(1)
        return Vectors((weight, self.delta) if self.bias else (weight,))

    def _code(self) -> Tensor:
        """Compute [z, 1], or z for a head without bias."""
        return torch.cat([self.z, torch.ones_like(self.z[:, :1])], 1) if self.bias else self.z


def hash_classes(n_classes: int, size: int) -> Tensor:
    """Draw H (C, q), with one entry of ±1 in each row, evenly spread over the columns: E ⟨δ_i H, δ_j H⟩ = ⟨δ_i, δ_j⟩.

    Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", 2009, https://arxiv.org/abs/0902.2206.

    >>> hash_classes(5, 2).abs().sum(0).tolist()
    [3.0, 2.0]
    """
    column = torch.randperm(n_classes) % size
    sign = 2.0 * torch.randint(2, (n_classes,)) - 1
    return torch.zeros(n_classes, size).scatter_(1, column.unsqueeze(1), sign.unsqueeze(1))


def classifier_gradients(classifier: nn.Module, z: Tensor, y: Tensor) -> Vectors | LinearGradients:
    """Compute per-sample gradients g_i = ∂l(y_i, h_φ(z_i))/∂φ of the cross-entropy, as constants.

    Args:
        classifier: h_φ; the closed form is used for one `nn.Linear`, `torch.func` for any other head, in evaluation
            mode (dropout, batch statistics).
        z: codes (m, d).
        y: classes (m,).

    >>> g = classifier_gradients(nn.Linear(5, 3), torch.randn(4, 5), torch.tensor([0, 1, 2, 0]))
    >>> g.dense().shape
    torch.Size([4, 18])
    """
    z = z.detach()
    head = linear_head(classifier)
    if head is None:
        return _functional_gradients(unwrap(classifier), z, y)
    return LinearGradients(_residuals(linear_logits(head, z), y), z, head.bias is not None)


def _residuals(logits: Tensor, y: Tensor) -> Tensor:
    """Compute δ = softmax − onehot (m, C) of logits (m, C)."""
    true = y.unsqueeze(1)
    others = torch.softmax(logits, 1).scatter_(1, true, 0.0)
    # δ_y = −Σ_{c≠y} p_c rather than p_y − 1, which rounds to 0 for a well-fitted sample.
    return others.scatter_(1, true, -others.sum(1, keepdim=True))


def mean_gradient_norm(classifier: nn.Module, z: Tensor, y: Tensor, logits: Tensor) -> Tensor:
    """Compute ‖mean_i g_i‖, the norm of the gradient that the mean loss of codes (m, d) sends to the classifier.

    The logits (m, C) of the codes are given, because callers need them, too; they are used for a linear head.

    >>> head, z, y = nn.Linear(5, 3), torch.randn(4, 5), torch.tensor([0, 1, 2, 0])
    >>> g = classifier_gradients(head, z, y)
    >>> torch.allclose(mean_gradient_norm(head, z, y, head(z)), g.dense().mean(0).norm(), atol=1e-6)
    True
    """
    linear = linear_head(classifier)
    if linear is not None:
        delta = _residuals(logits.detach(), y)
        norm: Tensor = torch.linalg.vector_norm(delta.T @ z.detach())
        if linear.bias is not None:
            norm = torch.hypot(norm, torch.linalg.vector_norm(delta.sum(0)))
        return norm / len(delta)
    head = unwrap(classifier)

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return cross_entropy(functional_call(head, parameters, (z.detach(),)), y)

    with set_evaluation_mode(head):
        blocks: dict[str, Tensor] = grad(loss)(frozen_parameters(head, z.dtype))
    return torch.cat([block.detach().flatten() for block in blocks.values()]).square().sum().sqrt()


def _functional_gradients(head: nn.Module, z: Tensor, y: Tensor) -> Vectors:
    def loss(parameters: dict[str, Tensor], z_i: Tensor, y_i: Tensor) -> Tensor:
        logits = functional_call(head, parameters, (z_i.unsqueeze(0),))
        return cross_entropy(logits, y_i.unsqueeze(0))

    with set_evaluation_mode(head):
        parameters = frozen_parameters(head, z.dtype)
        blocks: dict[str, Tensor] = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, z, y)
    return Vectors(tuple(block.detach().flatten(1) for block in blocks.values()))


def cosine_scores(vectors: Vectors | LinearGradients, position: Tensor) -> Tensor:
    """Compute s_i = Σ_{j≠i} cos(v_i, v_j) for each member of each tuple, (n, k).

    `position` (n, k) has the members of the tuples, as indices into the m vectors.

    >>> g = Vectors((torch.tensor([[-0.5, 1.0], [-1.0, 0.5], [-1.0, -1.0], [1.0, -1.0]]),))
    >>> cosine_scores(g, torch.arange(4).unsqueeze(0)).softmax(1)
    tensor([[0.2122, 0.3994, 0.3378, 0.0507]])
    """
    cosines = vectors.cosines(position)
    return cosines.sum(2) - cosines.diagonal(dim1=1, dim2=2)


class Compatibility(nn.Module):
    """A_ω(v_i, v_j): the learned, asymmetric compatibility of two vectors in R^P.

    The two-layer MLP of the paper on the concatenation [v_i ; v_j], with tanh after each layer, then a linear output.
    Calling the module evaluates this definition; `scores` computes the same values for all ordered pairs of tuples
    without concatenating any pair.

    Args:
        sizes: P_1, P_2, …: sizes of the blocks that make up a vector (`block_sizes(classifier)`, or [d] for codes).
        hidden: width of both layers.

    >>> A = Compatibility([5])
    >>> A(torch.randn(4, 5), torch.randn(4, 5)).shape
    torch.Size([4])
    """

    def __init__(self, sizes: Sequence[int], hidden: int = 64) -> None:
        super().__init__()
        self.sizes, self.hidden = list(sizes), hidden
        bound = 1 / math.sqrt(2 * sum(sizes))  # of nn.Linear(2P, hidden)
        # Rows 0…h−1 of a block belong to W_a, the others to W_b. Separate blocks, because that of the head's weight can
        # then be viewed as (2h·C, d) without a copy; slices of one (h, 2P) matrix would be copied in each pass.
        self.blocks = nn.ParameterList(torch.empty(2 * hidden, size).uniform_(-bound, bound) for size in sizes)
        self.bias = nn.Parameter(torch.empty(hidden).uniform_(-bound, bound))
        self.rest = nn.Sequential(nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def weight(self) -> Tensor:
        """Compute [W_a, W_b], the first layer's weight (h, 2P) on [v_i ; v_j]."""
        h = self.hidden
        return torch.cat([w[:h] for w in self.blocks] + [w[h:] for w in self.blocks], 1)

    def forward(self, v_i: Tensor, v_j: Tensor) -> Tensor:
        """Compute A_ω of pairs of vectors (…, P), by the definition."""
        compatibility: Tensor = self.rest(linear(torch.cat([v_i, v_j], -1), self.weight(), self.bias))
        return compatibility.squeeze(-1)

    def scores(self, vectors: Vectors | LinearGradients, position: Tensor) -> Tensor:
        """Compute s_i = Σ_{j≠i} A_ω(v_i, v_j) for each member of each tuple, (n, k)."""
        n, k = position.shape
        projected = vectors.project(list(self.blocks))  # (m, 2h), each vector once
        members = projected.index_select(0, position.flatten()).view(n, k, -1)
        first, second = members.chunk(2, -1)  # W_a v_i and W_b v_j, (n, k, h)
        second = second + self.bias
        others = torch.stack([second.roll(-shift, 1) for shift in range(1, k)], 2)  # (n, k, k − 1, h), j ≠ i
        compatibility: Tensor = self.rest(first.unsqueeze(2) + others).squeeze(-1)
        return compatibility.sum(2)


class _ProjectCodes(torch.autograd.Function):
    """z Wᵀ for constant codes z (m, d) and a weight (h, C·d) seen as W (h·C, d).

    The gradient of such a weight is large (68 MB at C = 65, 362 MB at C = 345), and the system maps new memory of that
    size page by page: at C = 65 that takes 38 of the product's 65 ms. So the gradient is written to the memory of the
    previous one, if `zero_grad` has released that and no other reference to it exists.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(z)
        ctx.weight, ctx.last = weight, weight.grad
        return linear(z, weight.view(-1, z.shape[1]))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        (z,) = ctx.saved_tensors
        weight, last, ctx.weight, ctx.last = ctx.weight, ctx.last, None, None
        free = last is not None and weight.grad is None and sys.getrefcount(last) == 2  # `last` and the argument
        out = last.view(-1, z.shape[1]) if free else None
        return None, torch.mm(gradient.T, z, out=out).view_as(weight)


def _norm(v: Tensor) -> Tensor:
    """Compute ‖v‖ of each vector, clamped above zero, on v / max |v|: squares of v may overflow or underflow."""
    largest = v.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(v.dtype).tiny)
    scaled: Tensor = torch.linalg.vector_norm(v / largest, dim=-1, keepdim=True)
    return scaled.clamp_min(1.0) * largest


def _cut(v: Tensor) -> Tensor:
    return v.clamp(-_LARGEST, _LARGEST)


def _gram(v: Tensor) -> Tensor:
    """Return inner products within each tuple, (n, k, p) → (n, k, k)."""
    return v @ v.transpose(1, 2)
