"""L_flat: how much the loss on mixed codes changes when the classifier moves by γ in a random direction.

    L_flat = mean_u ( L(φ) − L(φ + γ u/‖u‖) )²,   L(φ) = mean over the n mixed codes of l(y, h_φ(z_mix))

with u ~ N(0, I) in all P coordinates of φ, so that the step has norm exactly γ.

For a linear head the P numbers of u are never drawn. Write the mixed codes as A Z with constant codes Z (m × d) and
weights A (n × m), and u as a matrix U (C × d) for the weight beside a vector v (C) for the bias. The logits change by

    γ (A Z Uᵀ + 1 vᵀ) / ‖u‖.

Let Zᵀ = Q R with orthonormal columns in Q (d × r, r = min(m, d)). Then Z Uᵀ = Rᵀ E with E = Qᵀ Uᵀ (r × C). The
numbers of E are independent N(0, 1), and the rest of U is independent of E, so that

    ‖u‖² = ‖E‖² + ‖v‖² + χ²   with C (d − r) degrees of freedom.

Drawing E, v and χ² gives the law of the literal sampler, jointly for the loss and for its gradient in A: Z is constant,
and A multiplies the same noise as it would there. Repeated or dependent codes only make R singular, which nothing here
inverts.

What L_flat measures depends on how far a step of length γ moves the logits, compared with the margins that the
classifier has: `logit_noise` and `margins` measure both, and `relative_gamma` sets γ where no value is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy, linear

from fgmix.mixing._heads import bare, block_sizes, evaluating, frozen_parameters, linear_head, logits_of

_CHUNK = 2**24  # numbers of φ' alive at once on the general path (64 MB in float32)
_PROBES = 8  # directions that measure the logits' noise of a head that is not linear: it is known to some 5 %
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
    """L_flat of the mixed codes A z; differentiable in A alone.

    Args:
        classifier: h_φ; one `nn.Linear` takes the low-rank sampler, anything else draws u itself and is looked at in
            evaluation mode.
        A: mixing weights (n, m), as from `mixing_matrix`.
        z: codes (m, d), constants.
        y: classes of the mixed codes (n,).
        gamma: γ, the distance that φ moves.
        directions: S, how many u are drawn.
        generator: on the device of z; None for torch's own.

    Example:
        >>> A = torch.tensor([[0.5, 0.5]], requires_grad=True)
        >>> loss = flat_loss(nn.Linear(4, 3), A, torch.randn(2, 4), torch.tensor([0]), gamma=1.0)
        >>> loss.backward()
        >>> A.grad.shape
        torch.Size([1, 2])
    """
    z = z.detach()
    head = linear_head(classifier)
    if head is None:
        return _functional_flat_loss(bare(classifier), A @ z, y, gamma, directions, generator)
    W, bias = head.weight.detach().to(z.dtype), head.bias
    R = torch.linalg.qr(z.T, mode="r").R  # (r, m)
    coordinates, logits = (A @ torch.cat([R.T, linear(z, W)], 1)).split([len(R), len(W)], 1)  # of the mixed codes
    if bias is not None:
        logits = logits + bias.detach().to(z.dtype)
    steps = draw_steps(head, coordinates, gamma, directions, generator)
    return linear_gaps(logits, coordinates, steps, y).square().mean()


def draw_steps(
    head: nn.Linear, coordinates: Tensor, gamma: float | Tensor, directions: int, generator: torch.Generator | None
) -> Tensor:
    """γ u/‖u‖ for S directions, as far as codes with these coordinates (n, r) see it: E and, for a bias, v below it.

    Returns:
        (r, 1 + S, C), or (r + 1, 1 + S, C) with a bias. The first of the 1 + S is no step at all.
    """
    C, r = head.out_features, coordinates.shape[1]
    rows = r + (head.bias is not None)
    E = torch.randn(rows, 1 + directions, C, generator=generator, device=coordinates.device, dtype=coordinates.dtype)
    squared = E.square().sum(0).sum(1)
    unseen = C * (head.in_features - r)
    if unseen > 0:
        # χ² with f degrees of freedom is 2·Gamma(f/2); torch.distributions, which calls this too, takes no generator.
        squared = squared + 2 * torch._standard_gamma(torch.full_like(squared, unseen / 2), generator=generator)
    scale = gamma * squared.rsqrt()
    scale[0] = 0.0
    return E.mul_(scale.unsqueeze(1))


def linear_gaps(logits: Tensor, coordinates: Tensor, steps: Tensor, y: Tensor) -> Tensor:
    """L(φ) − L(φ + step) for each step but the first, which is none, (S,).

    Args:
        logits: of the mixed codes (n, C).
        coordinates: of the mixed codes (n, r).
        steps: as `draw_steps` gives them.
        y: classes (n,).
    """
    (n, r), S = coordinates.shape, steps.shape[1]
    E, v = steps[:r].flatten(1), steps[r:].flatten(1)  # v has one row, or none
    change = torch.addmm(v, coordinates, E) if len(v) else coordinates @ E
    moved = logits.unsqueeze(1) + change.view(n, S, -1)
    losses = cross_entropy(moved.flatten(0, 1), y.repeat_interleave(S), reduction="none").view(n, S).mean(0)
    return losses[0] - losses[1:]


def logit_noise(classifier: nn.Module, z: Tensor) -> Tensor:
    """How far the logits of each code move, in root mean square, when φ moves by 1 in a random direction, (N,).

    For one `nn.Linear` this is ‖[z, 1]‖/√P (‖z‖/√P without a bias), exactly, and L_flat at γ adds γ times as much to
    the logits. In general it is ‖∂h_φ(z)/∂φ‖_F/√(C·P), of which the linear case is one. There the codes' norm
    would say nothing of the layers between code and logits, so it is measured: differences of the logits along a few
    directions, over a step of one hundredth of ‖φ‖, short enough for the head to be linear in φ. The directions are
    always the same ones, so that a measurement takes nothing from the generator of a run.

    Args:
        classifier: h_φ, looked at in evaluation mode.
        z: codes (N, d), constants.

    Example:
        >>> logit_noise(nn.Linear(2, 2, bias=False), torch.tensor([[3.0, 4.0]]))
        tensor([2.5000])
    """
    z = z.detach()
    size = sum(block_sizes(classifier))
    head = linear_head(classifier)
    if head is None:
        return _functional_noise(bare(classifier), z, size)
    return (z.square().sum(1) + (head.bias is not None)).sqrt() / math.sqrt(size)


def margins(classifier: nn.Module, z: Tensor, y: Tensor) -> Tensor:
    """The true class's logit minus the largest other one, for each code, (N,); negative where it is misclassified.

    Args:
        classifier: h_φ, looked at in evaluation mode.
        z: codes (N, d), constants.
        y: their classes (N,).

    Example:
        >>> head = nn.Linear(2, 2, bias=False)
        >>> _ = head.weight.data.copy_(torch.eye(2))
        >>> margins(head, torch.tensor([[3.0, 1.0], [3.0, 1.0]]), torch.tensor([0, 1]))
        tensor([ 2., -2.])
    """
    logits, true = logits_of(classifier, z.detach()), y.unsqueeze(1)
    return logits.gather(1, true).squeeze(1) - logits.scatter(1, true, -math.inf).amax(1)


def relative_gamma(noise: Tensor, margin: Tensor, size: int) -> Tensor:
    """γ at which the logits' noise is half the margin; 10·√(P/14,343) where the margin is not positive.

    The second is the paper's middle value, 10 for a linear head on 2048 numbers and 7 classes, at the same noise for
    codes of the same norm.

    Args:
        noise: of a step of length 1: the median of `logit_noise`.
        margin: the median of `margins`.
        size: P.

    Example:
        >>> relative_gamma(torch.tensor(0.5), torch.tensor(3.0), 14_343), relative_gamma(
        ...     torch.tensor(0.5), torch.tensor(-3.0), 14_343
        ... )
        (tensor(3.), tensor(10.))
    """
    gamma = 0.5 * margin / noise
    return torch.where((gamma > 0) & gamma.isfinite(), gamma, _PAPER_GAMMA * math.sqrt(size / _PAPER_P))


def _functional_flat_loss(
    head: nn.Module, z_mix: Tensor, y: Tensor, gamma: float | Tensor, directions: int, generator: torch.Generator | None
) -> Tensor:
    """L_flat with u drawn in R^P, in chunks: each is differentiated before the next one, so that the parameters of
    all S perturbed heads never live at once."""
    z = z_mix.detach().requires_grad_(z_mix.requires_grad)
    value, gradient = torch.zeros((), device=z.device, dtype=z.dtype), torch.zeros_like(z)
    size = sum(block_sizes(head))
    with evaluating(head):
        for chunk in torch.arange(directions).split(max(1, _CHUNK // size)):
            u = torch.randn(len(chunk), size, generator=generator, device=z.device, dtype=z.dtype)
            part = _functional_gaps(head, z, y, gamma * u / u.norm(dim=1, keepdim=True)).square().sum() / directions
            value = value + part.detach()
            if z.requires_grad:
                gradient = gradient + torch.autograd.grad(part, z)[0]
    # The value, with the gradient that was gathered: the second term is zero.
    return value + (gradient * (z_mix - z_mix.detach())).sum()


def _functional_gaps(head: nn.Module, z: Tensor, y: Tensor, steps: Tensor) -> Tensor:
    """L(φ) − L(φ + step) for each step (S, P) → (S,)."""
    logits = _logits_after(head, z)
    gaps: Tensor = cross_entropy(logits(None), y) - vmap(lambda step: cross_entropy(logits(step), y))(steps)
    return gaps


@torch.no_grad()
def _functional_noise(head: nn.Module, z: Tensor, size: int) -> Tensor:
    """`logit_noise` by differences along fixed directions."""
    u = torch.randn(_PROBES, size, generator=torch.Generator(z.device).manual_seed(0), device=z.device, dtype=z.dtype)
    phi = torch.cat([p.flatten() for p in frozen_parameters(head, z.dtype).values()])
    length = (phi.norm() / 100).clamp_min(1e-3)  # of a head that is zero as yet: any length
    with evaluating(head):
        logits = _logits_after(head, z)
        change: Tensor = vmap(logits)(length * u / u.norm(dim=1, keepdim=True)) - logits(None)  # (S, N, C)
    noise: Tensor = change.square().mean((0, 2)).sqrt() / length
    return noise


def _logits_after(head: nn.Module, z: Tensor) -> Callable[[Tensor | None], Tensor]:
    """The function step (P,) → h_{φ + step}(z); None for no step."""
    parameters = frozen_parameters(head, z.dtype)

    def logits(step: Tensor | None) -> Tensor:
        moved = parameters
        if step is not None:
            blocks = step.split([p.numel() for p in parameters.values()])
            moved = {name: p + block.view_as(p) for (name, p), block in zip(parameters.items(), blocks)}
        result: Tensor = functional_call(head, moved, (z,))
        return result

    return logits
