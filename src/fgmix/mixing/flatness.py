"""L_flat: how much the loss on mixed codes changes when φ is perturbed by a step of length γ in a random direction.

    L_flat = mean_u ( L(φ) − L(φ + γ u/‖u‖) )²,   L(φ) = mean over the n mixed codes of l(y, h_φ(z_mix))

with u ~ N(0, I) in all P coordinates of φ, so that the step has norm exactly γ.

For a linear head u itself is never sampled. Write the mixed codes as A Z with constant codes Z (m × d) and weights
A (n × m), and u as a matrix U (C × d) for the weight and a vector v (C) for the bias. The logits change by

    γ (A Z Uᵀ + 1 vᵀ) / ‖u‖.

Let Zᵀ = Q R with orthonormal columns in Q (d × r, r = min(m, d)). Then Z Uᵀ = Rᵀ E with E = Qᵀ Uᵀ (r × C). The
entries of E are independent N(0, 1), and the component of U outside the range of Q is independent of E, so that

    ‖u‖² = ‖E‖² + ‖v‖² + χ²   with C (d − r) degrees of freedom.

Sampling E, v and χ² gives the same distribution as sampling u, jointly for the loss and its gradient with respect to A,
because Z is constant. Repeated or linearly dependent codes only make R singular, and R is never inverted: any R with
RᵀR = Z Zᵀ will do, such as a Cholesky factor of Z Zᵀ, or Zᵀ itself where m ≥ d.

In a chain of linear layers and functions of single numbers, this holds for the first layer; the u of all later layers,
whose inputs depend on it, are sampled as they are.

What L_flat measures depends on how far a step of length γ moves the logits compared with the classifier's margins:
`logit_noise` and `margins` compute both, and `relative_gamma` sets γ from them if no value is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributions import Gamma
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy, linear, mse_loss

from fgmix.functional.gradients import with_gradients
from fgmix.mixing._heads import (
    block_sizes,
    chain_of,
    frozen_parameters,
    linear_head,
    logits_of,
    set_evaluation_mode,
    unwrap,
)

_CHUNK = 2**24  # elements of φ' in memory at once on the general path (64 MB in float32)
_PROBES = 8  # directions to estimate the logit noise of a head that is not linear, to about 5 %
_PAPER_GAMMA, _PAPER_P = 10.0, 14_343  # the middle of the paper's range of γ, for its head on PACS (2048 × 7 + 7)


def flat_loss(
    classifier: nn.Module,
    A: Tensor,
    z: Tensor,
    y: Tensor,
    *,
    gamma: float | Tensor,
    directions: int = 100,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Compute L_flat of the mixed codes A z; differentiable in A alone.

    Args:
        classifier: h_φ, in evaluation mode; the low-rank sampler is used for `nn.Linear` and chains of it. For any
            other head u itself is sampled.
        A: mixing weights (n, m), as from `mixing_matrix`.
        z: codes (m, d), constants.
        y: classes of the mixed codes (n,).
        gamma: γ, the length of the step.
        directions: S, the number of directions u.
        generator: on the device of z; None for torch's global one.

    >>> A = torch.tensor([[0.5, 0.5]], requires_grad=True)
    >>> loss = flat_loss(nn.Linear(4, 3), A, torch.randn(2, 4), torch.tensor([0]), gamma=1.0)
    >>> loss.backward()
    >>> A.grad.shape
    torch.Size([1, 2])
    """
    value, gradient = differentiate_flat_loss(
        classifier, A.detach(), z, y, gamma=gamma, directions=directions, generator=generator
    )
    return with_gradients([A], value, lambda upstream: [upstream * gradient])


def differentiate_flat_loss(
    classifier: nn.Module,
    A: Tensor,
    z: Tensor,
    y: Tensor,
    *,
    gamma: float | Tensor,
    directions: int,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    """Compute `flat_loss` and its gradient in A (n, m)."""
    z, chain = z.detach(), chain_of(classifier)
    if chain is None:
        value, in_codes = _functional_flat_loss(unwrap(classifier), A @ z, y, gamma, directions, generator)
        return value, in_codes @ z.T
    first, later = cast(nn.Linear, chain[0]), chain[1:]
    with torch.no_grad():
        factor, shares = _factor(z), linear(z, first.weight.to(z.dtype))  # (m, r), (m, C)
        coordinates = A @ factor
        outputs = A @ shares if first.bias is None else torch.addmm(first.bias.to(z.dtype), A, shares)
        differentiate = _differentiate_chain if later else _differentiate_linear
        value, (in_coordinates, in_outputs) = differentiate(
            chain, outputs, coordinates, y, gamma, directions, generator
        )
        return value, torch.addmm(in_coordinates @ factor.T, in_outputs, shares.T)


def _factor(z: Tensor) -> Tensor:
    """Return Rᵀ (m, r) with RᵀR = Z Zᵀ for codes Z (m, d), r = min(m, d)."""
    if z.shape[0] >= z.shape[1]:
        return z
    if z.device.type == "cpu":  # elsewhere, reading whether it failed would synchronise
        factor, failed = torch.linalg.cholesky_ex(z @ z.T)
        if not failed:
            return factor  # type: ignore[no-any-return]
    return torch.linalg.qr(z.T, mode="r").R.T  # type: ignore[no-any-return]


def _differentiate_linear(
    chain: tuple[nn.Module, ...],
    logits: Tensor,
    coordinates: Tensor,
    y: Tensor,
    gamma: float | Tensor,
    directions: int,
    generator: torch.Generator | None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Compute L_flat of one linear layer, and its gradients in the coordinates and in the logits of the mixed codes."""
    E, scale = draw_steps(cast(nn.Linear, chain[0]), coordinates, gamma, directions, generator)
    likelihoods, gradients = differentiate_gaps(logits, coordinates, E, scale, y)
    return mse_loss(likelihoods[1:], likelihoods[:1].expand(directions)), gradients


def _differentiate_chain(
    chain: tuple[nn.Module, ...],
    outputs: Tensor,
    coordinates: Tensor,
    y: Tensor,
    gamma: float | Tensor,
    directions: int,
    generator: torch.Generator | None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Compute L_flat of a chain of layers, and its gradients in the coordinates of the mixed codes and in the outputs
    that the first layer has for them, in chunks as `_functional_flat_loss`."""
    coordinates, outputs = (each.detach().requires_grad_() for each in (coordinates, outputs))
    value, gradients = outputs.new_zeros(()), [torch.zeros_like(coordinates), torch.zeros_like(outputs)]
    numbers = sum(p.numel() for layer in chain[1:] for p in layer.parameters())
    for chunk in torch.arange(directions).split(max(1, _CHUNK // numbers)):
        steps, moved = draw_chain_steps(chain, coordinates, gamma, len(chunk), generator)
        with torch.enable_grad():
            losses = compute_chain_losses(chain, outputs, coordinates, steps, moved, y)
            part = (losses[0] - losses[1:]).square().sum() / directions
        value = value + part.detach()
        gradients = [a + b for a, b in zip(gradients, torch.autograd.grad(part, [coordinates, outputs]))]
    return value, (gradients[0], gradients[1])


def draw_chain_steps(
    chain: tuple[nn.Module, ...],
    coordinates: Tensor,
    gamma: float | Tensor,
    directions: int,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    """Draw γ u/‖u‖ for S directions in a chain of layers.

    Returns:
        The steps of the first layer, E and v as in `draw_steps`, (1 + S, r, h) or (1 + S, r + 1, h) with a bias, and
        φ + γ u/‖u‖ of the other layers, (1 + S, P'). The first of the 1 + S steps is zero.
    """
    first = cast(nn.Linear, chain[0])
    (h, d), r = first.weight.shape, coordinates.shape[1]
    phi = torch.cat([p.detach().to(coordinates.dtype).flatten() for layer in chain[1:] for p in layer.parameters()])
    rows = r + (first.bias is not None)
    u = coordinates.new_empty(1 + directions, rows * h + len(phi)).normal_(generator=generator)
    squared = torch.linalg.vector_norm(u, dim=1).square_()
    if d > r:
        squared = squared + _sample_chi2(squared, h * (d - r), generator)
    scale = gamma * squared.rsqrt()
    scale[:1].zero_()
    steps, rest = u.mul_(scale.unsqueeze(1)).split([rows * h, len(phi)], 1)
    return steps.view(-1, rows, h), rest.add_(phi)


def compute_chain_losses(
    chain: tuple[nn.Module, ...], outputs: Tensor, coordinates: Tensor, steps: Tensor, moved: Tensor, y: Tensor
) -> Tensor:
    """Compute L(φ + step) for the steps from `draw_chain_steps`, (1 + S,), given coordinates (n, r) of the mixed codes
    and the outputs (n, h) of the first layer for them."""
    S, (n, r) = len(steps), coordinates.shape
    if steps.shape[1] > r:  # a bias
        coordinates = torch.cat([coordinates, coordinates.new_ones(n, 1)], 1)
    x = torch.baddbmm(outputs, coordinates.expand(S, n, -1), steps)  # (1 + S, n, h)
    parameters = [p for layer in chain[1:] for p in layer.parameters()]
    rest = (part.view(S, *p.shape) for part, p in zip(moved.split([p.numel() for p in parameters], 1), parameters))
    for layer in chain[1:]:
        if isinstance(layer, nn.Linear):
            weight = next(rest).transpose(1, 2)
            x = torch.bmm(x, weight) if layer.bias is None else torch.baddbmm(next(rest).unsqueeze(1), x, weight)
        else:
            x = layer(x)
    return cross_entropy(x.transpose(1, 2), y.expand(S, -1), reduction="none").mean(1)


def draw_steps(
    head: nn.Linear, coordinates: Tensor, gamma: float | Tensor, directions: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Draw u for S directions, restricted to what affects codes with these coordinates (n, r): E and, as a last row for
    a head with a bias, v.

    Returns:
        u, (r, 1 + S, C) or (r + 1, 1 + S, C) with a bias, and γ/‖u‖ (1 + S,). The first of the 1 + S is zero: no step.
    """
    C, r = head.out_features, coordinates.shape[1]
    rows = r + (head.bias is not None)
    E = torch.randn(rows, 1 + directions, C, generator=generator, device=coordinates.device, dtype=coordinates.dtype)
    squared = E.square().sum(0).sum(1)
    if head.in_features > r:
        squared = squared + _sample_chi2(squared, C * (head.in_features - r), generator)
    scale = gamma * squared.rsqrt()
    scale[:1].zero_()
    return E, scale


def _sample_chi2(like: Tensor, freedom: int, generator: torch.Generator | None) -> Tensor:
    """Sample χ² = Gamma(f/2, ½) of `like`'s shape with numbers of the generator, which `torch.distributions` does not
    accept: the default generator of the device continues from its state meanwhile."""
    chi2 = _chi2(freedom, like.dtype, like.device)
    if generator is None:
        return chi2.sample(like.shape)
    is_cuda = like.device.type == "cuda"
    default = torch.cuda.default_generators[like.device.index] if is_cuda else torch.default_generator
    before = default.get_state()
    default.set_state(generator.get_state())
    sample = chi2.sample(like.shape)
    generator.set_state(default.get_state())
    default.set_state(before)
    return sample


@lru_cache(64)
def _chi2(freedom: int, dtype: torch.dtype, device: torch.device) -> Gamma:
    shape, rate = (torch.tensor(value, dtype=dtype, device=device) for value in (freedom / 2, 0.5))
    return Gamma(shape, rate, validate_args=False)  # validation would synchronise


def differentiate_gaps(
    logits: Tensor, coordinates: Tensor, u: Tensor, scale: Tensor, y: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Compute the losses L_s = L(φ + step) of 1 + S steps, of which the first is zero, and the gradient of mean Δ_s².

    With o_s (n, C) the logits after step s, L_s = mean l(y, o_s) and Δ_s = L_0 − L_s:

        ∂ mean Δ² / ∂o_s = 2 c_s / (S n) · (softmax(o_s) − onehot(y)),   c_0 = Σ Δ_s,   c_s = −Δ_s

    Args:
        logits: of the mixed codes (n, C).
        coordinates: of the mixed codes (n, r).
        u: directions from `draw_steps`.
        scale: their γ/‖u‖.
        y: classes of the mixed codes (n,).

    Returns:
        −L_s (1 + S,), and the gradients in the coordinates and in the logits.
    """
    (n, r), (S, C) = coordinates.shape, u.shape[1:]
    E, v = u[:r].flatten(1), u[r:].flatten(1)  # v has one row, or none
    # Mixed codes last, (1 + S, C, n): a softmax over few classes is slow if they are the last dimension.
    change = torch.addmm(v.T, E.T, coordinates.T) if len(v) else E.T @ coordinates.T
    log_p = torch.addcmul(logits.T, change.view(S, C, n), scale.view(S, 1, 1)).log_softmax(1)
    true = y.expand(S, 1, n)
    likelihoods = log_p.gather(1, true).mean((1, 2))  # −L_s
    gaps = likelihoods - likelihoods[0]
    share = gaps * (-2 / ((S - 1) * n))  # 2 c_s / (S n)
    share[:1].sub_(share.sum())
    residuals = log_p.exp_().scatter_(1, true, -1.0, reduce="add")
    in_logits = (share @ residuals.flatten(1)).view(C, n).T
    return likelihoods, ((E @ residuals.mul_((share * scale).view(S, 1, 1)).flatten(0, 1)).T, in_logits)


def logit_noise(classifier: nn.Module, z: Tensor) -> Tensor:
    """Compute the root-mean-square change of the logits of each code when φ moves by 1 in a random direction, (N,).

    For one `nn.Linear` this is exactly ‖[z, 1]‖/√P (‖z‖/√P without a bias), and the perturbations of L_flat change the
    logits by γ times as much. In general it is ‖∂h_φ(z)/∂φ‖_F/√(C·P), to first order. For other heads it is estimated
    by differences of the logits along a few directions, with a step of one hundredth of ‖φ‖, short enough for the head
    to be nearly linear in φ. The directions are fixed, so that the estimate uses no random numbers of the run.

    >>> logit_noise(nn.Linear(2, 2, bias=False), torch.tensor([[3.0, 4.0]]))
    tensor([2.5000])
    """
    z, head = z.detach(), linear_head(classifier)
    if head is None:
        return _functional_noise(unwrap(classifier), z)
    return (z.square().sum(1) + (head.bias is not None)).sqrt() / math.sqrt(sum(block_sizes(head)))


def margins(classifier: nn.Module, z: Tensor, y: Tensor) -> Tensor:
    """Return the logit of the true class minus the largest other logit, for each code, (N,); negative if misclassified.

    >>> head = nn.Linear(2, 2, bias=False)
    >>> _ = head.weight.data.copy_(torch.eye(2))
    >>> margins(head, torch.tensor([[3.0, 1.0], [3.0, 1.0]]), torch.tensor([0, 1]))
    tensor([ 2., -2.])
    """
    return logit_margins(logits_of(classifier, z.detach()), y)


def logit_margins(logits: Tensor, y: Tensor) -> Tensor:
    """Return `margins` of given logits (N, C)."""
    true = y.unsqueeze(1)
    return logits.gather(1, true).squeeze(1) - logits.scatter(1, true, -math.inf).amax(1)


def relative_gamma(noise: Tensor, margin: Tensor, size: int) -> Tensor:
    """Compute γ for which the noise of the logits is half the margin; 10·√(P/14,343) if the margin is not positive.

    The second is 10, the middle of the paper's range, for a linear head with 2048 inputs and 7 classes; for a head of
    another size it gives the same noise for codes of the same norm. The noise is that of a step of length 1, the median
    of `logit_noise`, and the margin the median of `margins`; P is `size`.

    >>> [relative_gamma(torch.tensor(0.5), torch.tensor(margin), 14_343).item() for margin in (3.0, -3.0)]
    [3.0, 10.0]
    """
    gamma = 0.5 * margin / noise
    return torch.where((gamma > 0) & gamma.isfinite(), gamma, _PAPER_GAMMA * math.sqrt(size / _PAPER_P))


@torch.no_grad()
def measure_noise(classifier: nn.Module, z: Tensor, margins: Tensor) -> tuple[Tensor, Tensor]:
    """Return the medians of `logit_noise` over the codes of a batch and of their margins."""
    noise, margin = _medians(torch.stack([logit_noise(classifier, z), margins]))
    return noise, margin


def _medians(rows: Tensor) -> Tensor:
    """Compute the median of each row: `quantile(0.5)` to the bit, in a third of its time.

    >>> _medians(torch.tensor([[4.0, 1.0, 2.0, 3.0]]))
    tensor([2.5000])
    """
    ordered, n = rows.sort(1).values, rows.shape[1]
    return torch.lerp(ordered[:, (n - 1) // 2], ordered[:, n // 2], 0.5)


def margin_gamma(classifier: nn.Module, z: Tensor, y: Tensor) -> Tensor:
    """Compute γ for which the noise of the logits is half the median margin of a batch; 0 if that is not positive."""
    with torch.autocast(z.device.type, enabled=False):
        codes = z.detach().to(torch.promote_types(z.dtype, torch.float32))
        noise, margin = measure_noise(classifier, codes, margins(classifier, codes, y))
    gamma = 0.5 * margin / noise
    return torch.where((gamma > 0) & gamma.isfinite(), gamma, 0.0)


def loss_around(
    classifier: nn.Module,
    z: Tensor,
    y: Tensor,
    gamma: float | Tensor,
    count: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Compute the mean over S directions u of L(φ + γ u/‖u‖), with L the mean cross-entropy of codes (N, d) of classes
    (N,); differentiable in z and in φ, with γ and u constant. S is `count`.

    Here u itself is sampled: the low-rank sampler is exact only for the gradient of constant codes, and S is small.

    >>> head, z, y = nn.Linear(4, 3), torch.randn(2, 4), torch.tensor([0, 1])
    >>> bool(loss_around(head, z, y, 0.0, 4) == cross_entropy(head(z), y))
    True
    """
    head = unwrap(classifier)
    phi = dict(head.named_parameters())
    losses = []
    for _ in range(count):
        u = [torch.randn(p.shape, generator=generator, device=p.device, dtype=p.dtype) for p in phi.values()]
        scale = gamma / torch.stack([block.square().sum() for block in u]).sum().sqrt()
        moved = {name: p + scale * block for (name, p), block in zip(phi.items(), u)}
        losses.append(cross_entropy(functional_call(head, moved, (z,)), y))
    return torch.stack(losses).mean()


def _functional_flat_loss(
    head: nn.Module, z_mix: Tensor, y: Tensor, gamma: float | Tensor, directions: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Compute L_flat and its gradient in the mixed codes with u sampled in R^P, in chunks: each is differentiated
    before the next one, so that the parameters of all S perturbed heads are never in memory at once."""
    z = z_mix.detach().requires_grad_()
    value, gradient = torch.zeros((), device=z.device, dtype=z.dtype), torch.zeros_like(z)
    phi, predict = flatten_head(head, z.dtype)
    with set_evaluation_mode(head), torch.enable_grad():
        for chunk in torch.arange(directions).split(max(1, _CHUNK // len(phi))):
            u = torch.randn(len(chunk), len(phi), generator=generator, device=z.device, dtype=z.dtype)
            # In place: S·P numbers in new memory would take longer than the networks.
            moved = u.mul_(gamma / u.norm(dim=1, keepdim=True)).add_(phi)
            losses = vmap(lambda each: cross_entropy(predict(each, z), y))(moved)
            part = (cross_entropy(predict(phi, z), y) - losses).square().sum() / directions
            value, gradient = value + part.detach(), gradient + torch.autograd.grad(part, z)[0]
    return value, gradient


@torch.no_grad()
def _functional_noise(head: nn.Module, z: Tensor) -> Tensor:
    """Compute `logit_noise` by differences along fixed directions."""
    phi, predict = flatten_head(head, z.dtype)
    g = torch.Generator(z.device).manual_seed(0)
    u = torch.randn(_PROBES, len(phi), generator=g, device=z.device, dtype=z.dtype)
    length = (phi.norm() / 100).clamp_min(1e-3)  # a head initialised to zero needs some length
    with set_evaluation_mode(head):
        moved = vmap(lambda each: predict(each, z))(phi + length * u / u.norm(dim=1, keepdim=True))  # (S, N, C)
        change: Tensor = moved - predict(phi, z)
    noise: Tensor = change.square().mean((0, 2)).sqrt() / length
    return noise


def flatten_head(head: nn.Module, dtype: torch.dtype) -> tuple[Tensor, Callable[[Tensor, Tensor], Tensor]]:
    """Return φ (P,) as constants, and the function of φ and codes z that gives the logits h_φ(z).

    >>> head, z = nn.Linear(4, 3), torch.randn(2, 4)
    >>> phi, predict = flatten_head(head, torch.float32)
    >>> torch.equal(predict(phi, z), head(z))
    True
    """
    parameters = frozen_parameters(head, dtype)
    sizes = [p.numel() for p in parameters.values()]

    def predict(phi: Tensor, z: Tensor) -> Tensor:
        blocks = zip(parameters.items(), phi.split(sizes))
        logits: Tensor = functional_call(head, {name: block.view_as(p) for (name, p), block in blocks}, (z,))
        return logits

    return torch.cat([p.flatten() for p in parameters.values()]), predict
