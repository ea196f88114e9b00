"""Scores s_i = Σ_{j≠i} A(v_i, v_j) of the samples of a tuple, from their latent codes or classifier gradients.

A is the cosine, or the learned compatibility A_ω: [v_i ; v_j] → 64 → tanh → 64 → tanh → 1.

The gradient of one sample, g_i = ∂l(y_i, h_φ(z_i))/∂φ, has P elements (700,000 for DomainNet). For a linear head under
cross-entropy it is an outer product, g_i = δ_i ⊗ [z_i, 1] with δ = softmax − onehot, never materialised as a whole:

- W g_i is a bilinear form in (δ_i, z_i);
- ⟨g_i, g_j⟩ = ⟨δ_i, δ_j⟩ (⟨z_i, z_j⟩ + 1);
- the first layer of A_ω on [g_i ; g_j] is W_a g_i + W_b g_j: each sample is projected once, not once per pair.

A chain of linear layers and functions of single numbers, such as ReLU, has such a gradient in each layer, with the
layer's input in the place of z. For other heads `torch.func` computes the gradients, one block for each parameter
tensor of φ.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import permutations
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy, embedding_bag, linear

from fgmix.functional.gradients import Pullback, with_gradients
from fgmix.mixing._heads import (
    chain_of,
    frozen_parameters,
    linear_head,
    linear_logits,
    pass_through,
    set_evaluation_mode,
    unwrap,
)

_CHUNK = 2**18  # numbers of W z, or of its gradient, at a time (1 MB), which stay in the processor's cache
_LARGE = 2**20  # elements of a weight from which on oneDNN pays


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

    def project(self, weights: Sequence[Tensor]) -> tuple[Tensor, Pullback]:
        """Compute W v for all vectors, (m, h), with W given in the same blocks …, and its pullback."""
        projected = reduce(torch.add, (linear(block, w) for block, w in zip(self.blocks, weights)))
        return projected, lambda gradient: [gradient.T @ block for block in self.blocks]

    def cosines(self, position: Tensor) -> Tensor:
        """Return cosines between all members of each tuple, (n, k, k); `position` (n, k) indexes the vectors."""
        v = self.dense()
        return _gram((v / _norm(v))[position])


class Layer(NamedTuple):
    """m gradients δ_i ⊗ [z_i, 1] of a linear layer with inputs z_i and gradients δ_i in its outputs."""

    delta: Tensor  # (m, C)
    z: Tensor  # (m, d)
    bias: bool

    def code(self) -> Tensor:
        """Compute [z, 1], or z for a layer without bias."""
        return torch.cat([self.z, torch.ones_like(self.z[:, :1])], 1) if self.bias else self.z

    def norms(self) -> Tensor:
        return _norm(self.delta) * _norm(self.code())

    def materialise(self) -> list[Tensor]:
        weight = (self.delta.unsqueeze(2) * self.z.unsqueeze(1)).flatten(1)
        return [weight, self.delta] if self.bias else [weight]

    def project(self, weights: Sequence[Tensor]) -> tuple[Tensor, Pullback]:
        """Compute W g = Σ_c δ_c W_c z for all gradients, (m, h), and its pullback; W is in blocks, for weight and
        bias."""
        (m, C), z, delta, weight = self.delta.shape, self.z, self.delta, weights[0]
        d, of_class, onednn = z.shape[1], delta.unsqueeze(2), _suits_onednn(weight)
        pieces = math.ceil(delta.numel() * len(weight) / _CHUNK)
        parts = [  # W z for all classes, of some rows of W at once
            torch.bmm(_multiply(z, rows.view(-1, d), onednn=onednn).view(m, -1, C), of_class).squeeze(2)
            for rows in weight.detach().chunk(pieces)
        ]
        projected = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
        if self.bias:
            projected.addmm_(delta, weights[1].T)
        last = weight.grad

        def pull(gradient: Tensor) -> list[Tensor]:
            # The gradient of such a weight is large (362 MB at d = 2048, C = 345), and the system maps new memory of
            # that size page by page, which takes longer than the product. So it is written to the memory of the
            # previous one, if `zero_grad` has released that and no other reference to it exists.
            nonlocal last
            previous, last = last, None
            free = weight.grad is None and sys.getrefcount(previous) == 2  # `previous` and the argument
            of_weight = previous if previous is not None and free else torch.empty_like(weight)
            pieces = math.ceil(weight.numel() / _CHUNK) if onednn else 1
            codes = z.T.contiguous() if onednn else z.T
            for out, rows in zip(of_weight.view(-1, C, d).chunk(pieces), gradient.T.unsqueeze(1).chunk(pieces)):
                per_class = (rows * delta.T).flatten(0, 1)  # (rows·C, m)
                _multiply(per_class, codes, out.view(-1, d), onednn=onednn)
            return [of_weight, gradient.T @ delta] if self.bias else [of_weight]

        return projected, pull


@dataclass(frozen=True)
class LinearGradients:
    """m gradients of a chain of linear layers, stored as their factors. Same operations as `Vectors`.

    Coordinates follow `parameters()`: in each layer the weight row by row, then the bias.
    """

    layers: tuple[Layer, ...]

    def dense(self) -> Tensor:
        return torch.cat([block for layer in self.layers for block in layer.materialise()], 1)

    def norms(self) -> Tensor:
        norms = [layer.norms() for layer in self.layers]
        return norms[0] if len(norms) == 1 else _norm(torch.cat(norms, 1))

    def normalise(self) -> LinearGradients:
        rms = self.norms() / math.sqrt(sum(len(d[0]) * (z.shape[1] + bias) for d, z, bias in self.layers))
        return LinearGradients(tuple(layer._replace(delta=layer.delta / rms) for layer in self.layers))

    def hash(self, hashes: Tensor) -> LinearGradients:
        """Return (δ_i H) ⊗ [z_i, 1] with H (C, q) from `hash_outputs`, whose rows are those of all layers."""
        parts = hashes.split([layer.delta.shape[1] for layer in self.layers])
        return LinearGradients(tuple(layer._replace(delta=layer.delta @ H) for layer, H in zip(self.layers, parts)))

    def project(self, weights: Sequence[Tensor]) -> tuple[Tensor, Pullback]:
        rest = iter(weights)
        parts = [layer.project([next(rest) for _ in range(1 + layer.bias)]) for layer in self.layers]
        projected = reduce(torch.add, (part for part, _ in parts))
        return projected, lambda gradient: [block for _, pull in parts for block in pull(gradient)]

    def cosines(self, position: Tensor) -> Tensor:
        products = [_gram((d / _norm(d))[position]) * _gram((c / _norm(c))[position]) for d, c in self._factors()]
        if len(products) == 1:
            return products[0]
        shares = torch.cat([layer.norms() for layer in self.layers], 1)
        shares = (shares / _norm(shares))[position]  # (n, k, L): ‖g‖ in a layer over ‖g‖
        pairs = shares.unsqueeze(2) * shares.unsqueeze(1)
        return (torch.stack(products, 3) * pairs).sum(3)

    def _factors(self) -> list[tuple[Tensor, Tensor]]:
        return [(layer.delta, layer.code()) for layer in self.layers]


def hash_outputs(n_classes: int, size: int) -> Tensor:
    """Draw H (C, q), with one entry of ±1 in each row, evenly spread over the columns: E ⟨δ_i H, δ_j H⟩ = ⟨δ_i, δ_j⟩.

    Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", 2009, https://arxiv.org/abs/0902.2206.

    >>> hash_outputs(5, 2).abs().sum(0).tolist()
    [3.0, 2.0]
    """
    column = torch.randperm(n_classes) % size
    sign = 2.0 * torch.randint(2, (n_classes,)) - 1
    return torch.zeros(n_classes, size).scatter_(1, column.unsqueeze(1), sign.unsqueeze(1))


def classifier_gradients(classifier: nn.Module, z: Tensor, y: Tensor) -> Vectors | LinearGradients:
    """Compute per-sample gradients g_i = ∂l(y_i, h_φ(z_i))/∂φ of the cross-entropy, as constants.

    Args:
        classifier: h_φ, in evaluation mode (dropout, batch statistics); factors are used for `nn.Linear` and chains of
            it, `torch.func` for any other head.
        z: codes (m, d).
        y: classes (m,).

    >>> g = classifier_gradients(nn.Linear(5, 3), torch.randn(4, 5), torch.tensor([0, 1, 2, 0]))
    >>> g.dense().shape
    torch.Size([4, 18])
    """
    z, chain = z.detach(), chain_of(classifier)
    if chain is None:
        return _functional_gradients(unwrap(classifier), z, y)
    if len(chain) == 1:
        return LinearGradients(
            (Layer(_residuals(linear_logits(cast(nn.Linear, chain[0]), z), y), z, chain[0].bias is not None),)
        )
    with torch.enable_grad():
        inputs, outputs = pass_through(chain, z)
    delta = _residuals(outputs[-1].detach(), y)
    deltas = [*torch.autograd.grad(outputs[-1], outputs[:-1], delta), delta]
    linears = [layer for layer in chain if isinstance(layer, nn.Linear)]
    return LinearGradients(
        tuple(Layer(d, x.detach(), layer.bias is not None) for d, x, layer in zip(deltas, inputs, linears))
    )


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
        return with_gradients(self.tensors(), *self.evaluate(vectors, position))

    def later_layers(self) -> tuple[nn.Linear, nn.Linear]:
        """Return the second and the third layer."""
        return cast(nn.Linear, self.rest[1]), cast(nn.Linear, self.rest[3])

    def tensors(self) -> list[Tensor]:
        """Return `parameters()` without a walk over modules, in the order of the pullback of `evaluate`."""
        second, third = self.later_layers()
        return [self.bias, *self.blocks, second.weight, second.bias, third.weight, third.bias]

    @torch.no_grad()
    def evaluate(self, vectors: Vectors | LinearGradients, position: Tensor) -> tuple[Tensor, Pullback]:
        """Compute `scores` and the function that maps a gradient in them to those in `tensors()`."""
        (n, k), h, (second, third) = position.shape, self.hidden, self.later_layers()
        projected, project_back = vectors.project(list(self.blocks))  # (m, 2h), each vector once
        # Seen as (2m, h), rows 2i and 2i + 1 of it are W_a v_i and W_b v_i.
        columns, half = _pair_columns(k, position.device)
        rows = torch.add(half, position.index_select(1, columns), alpha=2).flatten()  # two of each ordered pair
        sums = embedding_bag(rows, projected.view(-1, h), _count_pairs(len(rows), rows.device), mode="sum")
        x_1 = sums.add_(self.bias).tanh_()  # (n·k·(k − 1), h)
        x_2 = torch.addmm(second.bias, x_1, second.weight.T).tanh_()
        compatibility = torch.addmm(third.bias, x_2, third.weight.T)

        def pull(gradient: Tensor) -> list[Tensor]:
            g = gradient.unsqueeze(2).expand(n, k, k - 1).reshape(-1, 1)
            g_2 = _through_tanh(g * third.weight, x_2)
            g_1 = _through_tanh(g_2 @ second.weight, x_1)
            both = g_1.unsqueeze(1).expand(-1, 2, h).reshape(-1, h)
            in_projected = projected.new_zeros(2 * len(projected), h).index_add_(0, rows, both)
            of_rest = [g_2.T @ x_1, g_2.sum(0), g.T @ x_2, g.sum(0)]
            return [g_1.sum(0), *project_back(in_projected.view_as(projected)), *of_rest]

        return compatibility.view(n, k, k - 1).sum(2), pull


@cache
def _pair_columns(k: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the members i, j of all ordered pairs of a tuple, one pair after the other, and 0, 1, 0, 1, … for them."""
    columns = torch.tensor(list(permutations(range(k), 2)), device=device).flatten()
    return columns, torch.arange(len(columns), device=device) % 2


@cache
def _count_pairs(n: int, device: torch.device) -> Tensor:
    """Return where each pair of n numbers begins: 0, 2, 4, …"""
    return torch.arange(0, n, 2, device=device)


def _through_tanh(gradient: Tensor, x: Tensor) -> Tensor:
    """Compute the gradient (1 − x²) g before a tanh from that in its value x; overwrites it."""
    return gradient.addcmul_(gradient * x, x, value=-1)


def _norm(v: Tensor) -> Tensor:
    """Compute ‖v‖ of each vector, clamped above zero, on v / max |v|: squares of v may overflow or underflow."""
    largest = v.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(v.dtype).tiny)
    scaled: Tensor = torch.linalg.vector_norm(v / largest, dim=-1, keepdim=True)
    return scaled.clamp_min(1.0) * largest


def _suits_onednn(weight: Tensor) -> bool:
    """Tell whether oneDNN is to multiply by a large weight on a CPU. Torch uses MKL, which takes twice the time on
    processors of AMD, as it leaves out their widest instructions; small products lose more by copies than they gain."""
    on_host = weight.device.type == "cpu" and weight.dtype == torch.float32
    return on_host and weight.numel() >= _LARGE and torch.backends.mkldnn.is_available()


def _multiply(x: Tensor, w: Tensor, out: Tensor | None = None, *, onednn: bool) -> Tensor:
    """Compute x wᵀ of matrices (m, d) and (p, d)."""
    if not onednn:
        return torch.mm(x, w.T, out=out)
    product = linear(x.to_mkldnn(), w).to_dense()
    return product if out is None else out.copy_(product)


def _gram(v: Tensor) -> Tensor:
    """Return inner products within each tuple, (n, k, p) → (n, k, k)."""
    return v @ v.transpose(1, 2)
