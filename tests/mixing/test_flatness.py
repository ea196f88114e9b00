"""L_flat: the low-rank sampler against directions in R^P, exactly for given directions and in law for drawn ones."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fgmix.mixing import flatness, mixing_matrix
from fgmix.mixing.flatness import (
    compute_chain_losses,
    differentiate_gaps,
    draw_steps,
    flat_loss,
    logit_noise,
    loss_around,
    margin_gamma,
    margins,
    relative_gamma,
)
from fgmix.mixing.scores import mean_gradient_norm
from reference.literal import flat_loss_along

C = 3


def mixture(n: int, m: int, d: int) -> tuple[Tensor, Tensor, Tensor]:
    """Weights A (n, m) whose rows sum to 1, some below zero; codes; classes of the mixed codes. In double."""
    a = torch.softmax(torch.randn(n, 3, dtype=torch.float64), 1) * 3 - 2 / 3
    position = torch.stack([torch.randperm(m)[:3] for _ in range(n)])
    return (
        mixing_matrix(a, position, m).requires_grad_(),
        torch.randn(m, d, dtype=torch.float64) * 2,
        torch.arange(n) % C,
    )


def with_bias(head: nn.Linear, z: Tensor) -> Tensor:
    return z if head.bias is None else torch.cat([z, torch.ones_like(z[:, :1])], 1)


def flat_parameters(head: nn.Linear, U: Tensor) -> Tensor:
    """Directions U (S, C, D) in the order of parameters(): the weight row by row, then the bias."""
    if head.bias is None:
        return U.flatten(1)
    return torch.cat([U[:, :, :-1].flatten(1), U[:, :, -1]], 1)


def value_and_gradient(loss: Tensor, A: Tensor) -> tuple[Tensor, Tensor]:
    return loss.detach(), torch.autograd.grad(loss, A)[0]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("m", "d"), [(5, 12), (9, 4), (4, 4)])
@pytest.mark.parametrize("repeated", [False, True])
def test_given_directions_value_and_gradient_are_the_literal_ones(bias: bool, m: int, d: int, repeated: bool) -> None:
    """E = Qᵀ Uᵀ, v and ‖u‖ of the same u: one number and one gradient, also for repeated codes and for m > d."""
    head = nn.Linear(d, C, bias=bias).double()
    A, z, y = mixture(4, m, d)
    if repeated:
        z[1] = z[0]
    U = torch.randn(20, C, d + bias, dtype=torch.float64)

    Q, R = torch.linalg.qr(z.T)
    E = torch.cat([torch.einsum("dr,scd->rsc", Q, U[:, :, :d]), U[:, :, d:].permute(2, 0, 1)])
    scale = torch.cat([torch.zeros(1, dtype=torch.float64), 2.0 / U.flatten(1).norm(dim=1)])
    u = torch.cat([E[:, :1], E], 1)  # the first has scale zero
    losses, (in_coordinates, in_logits) = differentiate_gaps(head(A @ z).detach(), (A @ R.T).detach(), u, scale, y)
    literal, expected = value_and_gradient(flat_loss_along(head, A @ z, y, 2.0, flat_parameters(head, U)), A)

    torch.testing.assert_close((losses[1:] - losses[0]).square().mean(), literal)
    torch.testing.assert_close(in_coordinates @ R + in_logits @ (z @ head.weight.T).T, expected)


def literal_gaps(head: nn.Linear, A: Tensor, z: Tensor, y: Tensor, gamma: float, S: int) -> Tensor:
    """L(φ) − L(φ + γ u/‖u‖) for S directions drawn in R^P, written as matrices."""
    code = with_bias(head, A @ z)
    U = torch.randn(S, C, code.shape[1], dtype=z.dtype)
    U = gamma * U / U.flatten(1).norm(dim=1).view(-1, 1, 1)
    logits = head(A @ z)
    moved = logits + torch.einsum("nd,scd->snc", code, U)

    def loss(logits: Tensor) -> Tensor:
        return (torch.logsumexp(logits, -1) - logits[..., torch.arange(len(y)), y]).mean(-1)

    return loss(logits) - loss(moved)


def low_rank_gaps(head: nn.Linear, A: Tensor, z: Tensor, y: Tensor, gamma: float, S: int) -> Tensor:
    coordinates = A @ torch.linalg.qr(z.T, mode="r").R.T
    losses, _ = differentiate_gaps(head(A @ z), coordinates, *draw_steps(head, coordinates, gamma, S, None), y)
    return losses[1:] - losses[0]


def assert_same_moments(a: Tensor, b: Tensor) -> None:
    """Mean and variance of two samples agree within five standard errors of their difference."""
    for x, y in ((a, b), ((a - a.mean(0)).square(), (b - b.mean(0)).square())):
        error = (x.var(0) / len(x) + y.var(0) / len(y)).sqrt()
        assert ((x.mean(0) - y.mean(0)).abs() <= 5 * error).all()


@pytest.mark.parametrize(("m", "d"), [(4, 10), (9, 4)])
@pytest.mark.parametrize("gamma", [1.0, 30.0])
def test_the_sampler_has_the_literal_mean_and_variance(m: int, d: int, gamma: float) -> None:
    """Loss gaps and their squares over 20,000 directions each. The standard error of the squares' mean is then about
    1 % of it, so that an error in the norm (a wrong number of degrees of freedom, say) shows."""
    head = nn.Linear(d, C).double()
    A, z, y = mixture(3, m, d)
    with torch.no_grad():
        fast, literal = (gaps(head, A, z, y, gamma, 20_000) for gaps in (low_rank_gaps, literal_gaps))
    assert_same_moments(fast, literal)
    assert_same_moments(fast.square(), literal.square())


def test_the_sampler_has_the_literal_gradient_in_expectation() -> None:
    """∂L_flat/∂A over 400 estimates of 100 directions each: means and variances within five standard errors."""
    head = nn.Linear(8, C).double()
    A, z, y = mixture(3, 4, 8)

    def estimates(loss: Callable[[], Tensor]) -> Tensor:
        return torch.stack([torch.autograd.grad(loss(), A)[0] for _ in range(400)])

    fast = estimates(lambda: flat_loss(head, A, z, y, gamma=5.0, directions=100))
    assert_same_moments(fast, estimates(lambda: literal_gaps(head, A, z, y, 5.0, 100).square().mean()))


def test_steps_have_norm_gamma() -> None:
    """With D codes of full rank the step itself can be read off the logits' changes."""
    d, S = 4, 7
    head = nn.Linear(d, C).double()
    z = torch.randn(d + 1, d, dtype=torch.float64)
    coordinates = torch.linalg.qr(z.T, mode="r").R.T
    u, scale = draw_steps(head, coordinates, 2.5, S, None)
    changes = torch.einsum("mr,rsc,s->smc", with_bias(head, coordinates), u, scale)
    steps = torch.linalg.solve(with_bias(head, z), changes)  # (1 + S, d + 1, C)
    expected = torch.tensor([0.0] + S * [2.5], dtype=torch.float64)  # the first is no step
    torch.testing.assert_close(steps.flatten(1).norm(dim=1), expected)


def test_general_heads_draw_the_same_estimator() -> None:
    """The general path on an MLP equals the literal loss along the same u, drawn in chunks of 1, 4 and all."""
    head = nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, C)).double()
    A, z, y = mixture(4, 7, 6)
    P = sum(p.numel() for p in head.parameters())
    for chunks in ([1] * 9, [4, 4, 1], [9]):
        generator = torch.Generator().manual_seed(5)
        u = torch.cat([torch.randn(size, P, generator=generator, dtype=torch.float64) for size in chunks])
        expected = value_and_gradient(flat_loss_along(head, A @ z, y, 3.0, u), A)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(flatness, "_CHUNK", chunks[0] * P)
            loss = flat_loss(head, A, z, y, gamma=3.0, directions=9, generator=generator.manual_seed(5))
        for got, wanted in zip(value_and_gradient(loss, A), expected):
            torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("m", "d"), [(5, 12), (9, 4)])
def test_given_directions_a_chain_has_the_literal_value_and_gradient(bias: bool, m: int, d: int) -> None:
    """As for one layer: the first layer by its factor, u itself for the others."""
    head = nn.Sequential(nn.Linear(d, 5, bias=bias), nn.Tanh(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, C, bias=bias))
    A, z, y = mixture(4, m, d)
    first = head.double()[0]
    u = torch.randn(7, sum(p.numel() for p in head.parameters()), dtype=torch.float64)
    u[0] = 0.0
    scale = 2.0 / u.norm(dim=1, keepdim=True)
    scale[0] = 0.0
    steps = u * scale
    weight, v, rest = steps.split([5 * d, 5 * bias, steps.shape[1] - 5 * (d + bias)], 1)
    Q, R = torch.linalg.qr(z.T)
    E = torch.cat([torch.einsum("dr,sod->sro", Q, weight.view(7, 5, d)), v.view(7, bias, 5)], 1)
    moved = rest + nn.utils.parameters_to_vector([p for layer in head[1:] for p in layer.parameters()])
    outputs, coordinates = (each.detach().requires_grad_() for each in (first(A @ z), A @ R.T))
    losses = compute_chain_losses(tuple(head), outputs, coordinates, E, moved.detach(), y)
    value = (losses[0] - losses[1:]).square().mean()
    in_coordinates, in_outputs = torch.autograd.grad(value, [coordinates, outputs])
    literal, expected = value_and_gradient(flat_loss_along(head, A @ z, y, 2.0, u[1:]), A)
    torch.testing.assert_close(value, literal)
    torch.testing.assert_close(in_coordinates @ R + in_outputs @ (z @ first.weight.T).T, expected)


class Whole(nn.Module):
    """A head of a class of its own, which takes the general path."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, z: Tensor) -> Tensor:
        logits: Tensor = self.head(z)
        return logits


@pytest.mark.parametrize("kind", ["linear", "mlp", "without bias"])
def test_general_and_special_paths_agree_where_both_apply(kind: str) -> None:
    """One head, bare and inside a module: 60 estimates of 200 directions each, five standard errors."""
    head = AROUND[kind]().double()
    A, z, y = mixture(3, 4, 5)

    def estimates(classifier: nn.Module) -> Tensor:
        drawn = []
        for _ in range(60):
            value, gradient = value_and_gradient(flat_loss(classifier, A, z, y, gamma=5.0, directions=200), A)
            drawn.append(torch.cat([value.view(1), gradient.flatten()]))
        return torch.stack(drawn)

    fast, general = estimates(head), estimates(Whole(head))
    error = (fast.var(0) / 60 + general.var(0) / 60).sqrt()
    assert ((fast.mean(0) - general.mean(0)).abs() <= 5 * error).all()


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_no_loss_reaches_the_classifier_or_the_codes(kind: str) -> None:
    head = nn.Linear(6, C) if kind == "linear" else nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, C))
    z = torch.randn(4, 6, requires_grad=True)
    A = torch.full((2, 4), 0.25, requires_grad=True)
    flat_loss(head, A, z, torch.tensor([0, 1]), gamma=1.0).backward()
    assert A.grad is not None
    assert A.grad.abs().sum() > 0
    assert z.grad is None
    assert all(p.grad is None for p in head.parameters())


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_same_generator_same_loss(kind: str) -> None:
    head = nn.Linear(6, C) if kind == "linear" else nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, C))
    A, z, y = torch.full((2, 4), 0.25), torch.randn(4, 6), torch.tensor([0, 1])
    before = torch.get_rng_state()
    first, second = (
        flat_loss(head, A, z, y, gamma=1.0, directions=5, generator=torch.Generator().manual_seed(1)) for _ in range(2)
    )
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


def test_equal_codes_and_a_far_neighbourhood_stay_finite() -> None:
    z = torch.ones(6, 8) * 50
    A = torch.randn(4, 6)
    A = (A / A.sum(1, keepdim=True)).requires_grad_()
    loss = flat_loss(nn.Linear(8, C), A, z, torch.tensor([0, 1, 2, 0]), gamma=100.0)
    value, gradient = value_and_gradient(loss, A)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()


# The logits' noise against the margin


def perturbed_logits(head: nn.Module, z: Tensor, length: float, count: int) -> Tensor:
    """Changes of the logits (count, N, C) when φ moves by `length` in random directions, one by one."""
    twin, changes = copy.deepcopy(head).eval(), []
    start = nn.utils.parameters_to_vector(twin.parameters()).detach()
    before = twin(z).detach()
    for _ in range(count):
        u = torch.randn_like(start)
        nn.utils.vector_to_parameters(start + length * u / u.norm(), twin.parameters())
        changes.append(twin(z).detach() - before)
    return torch.stack(changes)


HEADS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(12, C),
    "without bias": lambda: nn.Linear(12, C, bias=False),
    "mlp": lambda: nn.Sequential(nn.Linear(12, 9), nn.LayerNorm(9), nn.Dropout(0.5), nn.GELU(), nn.Linear(9, C)),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(12, C)),
}


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch on weight norm under vmap
def test_noise_is_how_far_the_logits_move_per_unit_of_gamma(kind: str) -> None:
    """Against 2000 perturbed heads; the general path knows it from eight directions, to some ten per cent."""
    head, z = HEADS[kind]().double(), 3 * torch.randn(40, 12, dtype=torch.float64)
    measured = perturbed_logits(head, z, 1e-4, 2000).square().mean((0, 2)).sqrt() / 1e-4
    noise = logit_noise(head, z)
    linear = kind in ("linear", "without bias")
    assert noise.quantile(0.5).item() == pytest.approx(measured.quantile(0.5).item(), rel=0.03 if linear else 0.15)
    torch.testing.assert_close(noise, measured, rtol=0.06 if linear else 0.5, atol=0)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch on weight norm under vmap
def test_measuring_draws_nothing_and_changes_nothing(kind: str) -> None:
    head, z = HEADS[kind]().train(), torch.randn(5, 12)
    before = torch.get_rng_state()
    assert torch.equal(logit_noise(head, z), logit_noise(head, z))
    margins(head, z, torch.arange(5) % C)
    assert torch.equal(torch.get_rng_state(), before)
    assert head.training


@pytest.mark.parametrize("kind", HEADS)
def test_margins_by_hand(kind: str) -> None:
    head, z, y = HEADS[kind]().train(), torch.randn(6, 12), torch.arange(6) % C
    logits = copy.deepcopy(head).eval()(z)
    expected = [min((o[t] - o[c]).item() for c in range(C) if c != t) for o, t in zip(logits, y.tolist())]
    torch.testing.assert_close(margins(head, z, y), torch.tensor(expected))


def test_a_head_that_is_still_zero_has_a_noise() -> None:
    head = nn.Sequential(nn.Linear(4, C))
    nn.init.zeros_(head[0].weight)
    nn.init.zeros_(head[0].bias)
    assert torch.isfinite(logit_noise(head, torch.randn(3, 4))).all()


@pytest.mark.parametrize(("noise", "margin"), [(0.5, -1.0), (0.5, 0.0), (0.0, 1.0), (0.5, math.inf), (math.inf, 1.0)])
def test_gamma_has_a_value_whatever_was_measured(noise: float, margin: float) -> None:
    """Margins are infinite where there is one class, noise is zero for zero codes without a bias."""
    assert relative_gamma(torch.tensor(noise), torch.tensor(margin), 4 * 14_343).item() == pytest.approx(20)


AROUND: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(5, C),
    "without bias": lambda: nn.Linear(5, C, bias=False),
    "mlp": lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, C)),
}


@pytest.mark.parametrize("kind", AROUND)
def test_loss_around_is_the_mean_over_copies_of_the_classifier(kind: str) -> None:
    """Copies with parameters moved by γ u/‖u‖ in one vector: value, and gradients in codes and parameters."""
    head, y = AROUND[kind]().double(), torch.arange(6) % C
    z = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    P = sum(p.numel() for p in head.parameters())
    found = loss_around(head, z, y, 2.0, 4, torch.Generator().manual_seed(7))
    generator, losses, copies = torch.Generator().manual_seed(7), [], []
    for _ in range(4):
        blocks = [torch.randn(p.shape, generator=generator, dtype=p.dtype).flatten() for p in head.parameters()]
        u = torch.cat(blocks)
        moved = copy.deepcopy(head)
        phi = nn.utils.parameters_to_vector(head.parameters()) + 2.0 * u / u.norm()
        nn.utils.vector_to_parameters(phi.detach(), moved.parameters())
        copies.append(moved)
        losses.append(nn.functional.cross_entropy(moved(z), y))
    assert len(u) == P
    expected = torch.stack(losses).mean()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, z, retain_graph=True), torch.autograd.grad(expected, z))
    losses = [nn.functional.cross_entropy(moved(z), y) for moved in copies]
    per_copy = [torch.autograd.grad(loss, list(moved.parameters())) for loss, moved in zip(losses, copies)]
    gradients = torch.autograd.grad(found, list(head.parameters()))
    for gradient, each in zip(gradients, zip(*per_copy)):
        torch.testing.assert_close(gradient, torch.stack(each).mean(0))


@pytest.mark.parametrize("kind", AROUND)
def test_gamma_of_the_base_loss_is_half_the_median_margin(kind: str) -> None:
    head, z = AROUND[kind](), torch.randn(9, 5)
    y = head(z).argmax(1)
    noise, margin = logit_noise(head, z).quantile(0.5), margins(head, z, y).quantile(0.5)
    assert margin_gamma(head, z, y).item() == pytest.approx(0.5 * margin.item() / noise.item(), rel=1e-5)
    assert margin_gamma(head, z, (y + 1) % C) == 0, "no margin to keep"


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_l_flat_is_the_squared_gradient_of_the_mixed_codes_to_second_order(kind: str) -> None:
    """L_flat = (γ²/P)‖∇L‖² + (γ⁴/4)((tr H)² + 2‖H‖²)/(P(P+2)) + …, the first two terms also apart.

    Over pairs ±u, L(φ + γu) − L(φ) has an odd and an even part: the mean squares are the first and the second term.
    """
    torch.manual_seed(1)
    head = AROUND[kind]().double()
    for p in head.parameters():
        p.data *= 3
    z, y = 2 * torch.randn(6, 5, dtype=torch.float64), torch.arange(6) % C
    P, gamma, S = sum(p.numel() for p in head.parameters()), 0.02, 20_000
    names, sizes = [n for n, _ in head.named_parameters()], [p.numel() for p in head.parameters()]
    shapes = [p.shape for p in head.parameters()]

    def loss(phi: Tensor) -> Tensor:
        parameters = {n: b.view(shape) for n, b, shape in zip(names, phi.split(sizes), shapes)}
        return nn.functional.cross_entropy(torch.func.functional_call(head, parameters, (z,)), y)

    phi = nn.utils.parameters_to_vector(head.parameters()).detach()
    g, H = torch.func.grad(loss)(phi), torch.autograd.functional.hessian(loss, phi)
    first = gamma**2 / P * g.square().sum()
    second = gamma**4 / 4 * (H.trace() ** 2 + 2 * H.square().sum()) / (P * (P + 2))
    estimate = flat_loss(head, torch.eye(6, dtype=torch.float64), z, y, gamma=gamma, directions=S)
    assert estimate.item() == pytest.approx((first + second).item(), rel=0.05)
    assert mean_gradient_norm(head, z, y, head(z)).item() == pytest.approx(g.norm().item(), rel=1e-9)

    u = torch.randn(S // 5, P, dtype=torch.float64)
    u = gamma * u / u.norm(dim=1, keepdim=True)
    there, back = (torch.func.vmap(loss)(phi + step) - loss(phi) for step in (u, -u))
    assert ((there - back) / 2).square().mean().item() == pytest.approx(first.item(), rel=0.1)
    assert ((there + back) / 2).square().mean().item() == pytest.approx(second.item(), rel=0.1)
