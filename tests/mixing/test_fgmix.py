"""`FGMix` in a loop of someone's own."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.errors import UserError
from fgmix.mixing import draw_tuples
from fgmix.mixing import fgmix as module
from fgmix.mixing.fgmix import FGMix, Mixed
from reference.literal import LiteralPolicy, flat_loss_along

D, C = 6, 4
HEADS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(D, C),
    "without bias": lambda: nn.Linear(D, C, bias=False),
    "mlp": lambda: nn.Sequential(nn.Linear(D, 5), nn.ReLU(), nn.Linear(5, C)),
}


def batch(k: int = 3, per_domain: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    """Codes with a graph, classes (each in each domain), domain ids."""
    y, domains = torch.arange(k * per_domain) % C, torch.arange(k).repeat_interleave(per_domain)
    return (torch.randn(k * per_domain, D) + domains.unsqueeze(1)).requires_grad_(), y, domains


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: t.clone() for name, t in module.state_dict().items() if isinstance(t, Tensor)}


def changed(before: dict[str, Tensor], module: nn.Module) -> set[str]:
    return {name.split(".")[0] for name, t in state(module).items() if not torch.equal(t, before[name])}


def literal_twin(fgmix: FGMix, P: int) -> LiteralPolicy:
    twin = LiteralPolicy(P, D, lam=fgmix.lam.item(), gamma=fgmix.gamma.item(), alpha=fgmix.alpha).to(fgmix.lam.dtype)
    A, d = fgmix.compatibility, fgmix.discriminator
    assert A is not None
    assert d is not None
    twin.A[0].load_state_dict({"weight": A.weight().detach(), "bias": A.bias.detach()})
    for i in (1, 3):
        twin.A[i + 1].load_state_dict(A.rest[i].state_dict())
    twin.d[0].load_state_dict(d.first.state_dict())
    twin.d[2].load_state_dict(d.second.state_dict())
    return twin


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("k", [2, 3, 5])
def test_the_whole_policy_step_is_the_literal_one(kind: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same tuples, same directions u, same ẑ: mixed codes, all losses and all gradients agree, in float64."""
    head = HEADS[kind]().double()
    z, y, domains = batch(k)
    z = z.detach().double().requires_grad_()
    P = sum(p.numel() for p in head.parameters())
    u, z_prior = torch.randn(20, P, dtype=torch.float64), torch.randn(32, D, dtype=torch.float64)
    fgmix = FGMix(D, head, gamma=2.0).double()
    twin = literal_twin(fgmix, P)

    def along_u(h: nn.Module, A: Tensor, z: Tensor, y: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            loss = flat_loss_along(h, A.requires_grad_() @ z, y, 2.0, u)
        return loss.detach(), torch.autograd.grad(loss, A)[0]

    monkeypatch.setattr(module, "differentiate_flat_loss", along_u)
    monkeypatch.setattr(module, "sample_gaussian", lambda *_: z_prior)

    mixed = fgmix(z, y, domains, head, torch.Generator().manual_seed(3))
    index, labels = draw_tuples(y, domains, 32, generator=torch.Generator().manual_seed(3))
    z_mix = twin.mix(head, z.detach()[index], labels)
    flat, adv, policy, discriminator = twin.losses(head, z_mix, labels, u, z_prior)

    def same(a: Tensor, b: Tensor) -> None:
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-13)

    assert torch.equal(mixed.y, labels)
    same(mixed.z, z_mix)
    same(mixed.metrics["flat"], flat.detach())
    same(mixed.metrics["adv"], adv.detach())
    same(mixed.policy_loss, policy)
    same(mixed.discriminator_loss, discriminator)

    (mixed.policy_loss + mixed.discriminator_loss).backward()
    A, d = fgmix.compatibility, fgmix.discriminator
    assert A is not None
    assert d is not None
    omega = torch.autograd.grad(policy, [twin.lam, *twin.A.parameters()])
    h = A.hidden
    first = torch.cat([w.grad[:h] for w in A.blocks] + [w.grad[h:] for w in A.blocks], 1)
    mine = [fgmix.lam.grad, first, A.bias.grad, *(p.grad for p in A.rest.parameters())]
    for got, expected in zip(mine, omega):
        same(got, expected)
    for p, expected in zip(d.parameters(), torch.autograd.grad(discriminator, list(twin.d.parameters()))):
        same(p.grad, expected)


def test_each_loss_reaches_only_its_own_parameters() -> None:
    featurizer, head = nn.Linear(5, D), nn.Linear(D, C)
    _, y, domains = batch()
    fgmix = FGMix(D, head)
    z = featurizer(torch.randn(len(y), 5))
    mixed = fgmix(z, y, domains, head)
    parameters = {
        "base": [*featurizer.parameters(), *head.parameters()],
        "policy": [fgmix.lam, *fgmix.compatibility.parameters()],
        "discriminator": list(fgmix.discriminator.parameters()),
    }
    losses = {
        "base": cross_entropy(head(torch.cat([z, mixed.z])), torch.cat([y, mixed.y])),
        "policy": mixed.policy_loss,
        "discriminator": mixed.discriminator_loss,
    }
    for name, loss in losses.items():
        for p in (p for group in parameters.values() for p in group):
            p.grad = None
        loss.backward(retain_graph=True)
        assert {group for group, ps in parameters.items() if any(p.grad is not None for p in ps)} == {name}
        # The last bias of A_ω adds the same to all scores of a tuple: its gradient is zero, the others' are not.
        moving = [p for p in parameters[name] if p.numel() > 1]
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in moving)


def test_mixed_codes_pass_gradients_to_their_members_with_constant_weights() -> None:
    head = nn.Linear(D, C)
    z, y, domains = batch()
    mixed = FGMix(D, head)(z, y, domains, head, torch.Generator().manual_seed(0))
    (gradient,) = torch.autograd.grad(mixed.z.sum(), z)
    # Each tuple's weights sum to 1: every column gets 32 in all, and all columns alike.
    torch.testing.assert_close(gradient.sum(0), torch.full((D,), 32.0))
    torch.testing.assert_close(gradient, gradient[:, :1].expand(-1, D))


def test_without_lr_nothing_moves_but_the_averages() -> None:
    head = nn.Linear(D, C)
    fgmix = FGMix(D, head)
    before = state(fgmix)
    fgmix(*batch(), head)
    assert changed(before, fgmix) == {"prior", "gamma"}


def test_with_lr_a_call_updates_policy_and_discriminator() -> None:
    head = nn.Linear(D, C)
    fgmix = FGMix(D, head, lr=1e-2)
    before, phi = state(fgmix), state(head)
    fgmix(*batch(), head)
    assert changed(before, fgmix) == {"compatibility", "lam", "discriminator", "prior", "gamma"}
    assert not changed(phi, head)
    assert all(p.grad is None for p in head.parameters())


def test_the_update_uses_the_gradients_that_the_losses_have() -> None:
    """Adam's first step is lr·g/(|g| + ε) with the gradients of the same call without `lr`."""
    head, (z, y, domains) = nn.Linear(D, C), batch()
    free, owner = FGMix(D, head), FGMix(D, head, lr=1e-2)
    owner.load_state_dict(free.state_dict())
    mixed = free(z, y, domains, head, torch.Generator().manual_seed(1))
    (mixed.policy_loss + mixed.discriminator_loss).backward()
    owner(z, y, domains, head, torch.Generator().manual_seed(1))
    for p, q in zip(free.parameters(), owner.parameters()):
        torch.testing.assert_close(q, p - 1e-2 * p.grad / (p.grad.abs() + 1e-8), rtol=1e-5, atol=1e-5)


def test_mixed_codes_belong_to_the_weights_before_the_update() -> None:
    head, (z, y, domains) = nn.Linear(D, C), batch()
    free, owner = FGMix(D, head), FGMix(D, head, lr=1e-1)
    owner.load_state_dict(free.state_dict())
    first, second = (f(z, y, domains, head, torch.Generator().manual_seed(1)) for f in (free, owner))
    assert torch.equal(first.z, second.z)
    assert first.metrics.keys() == second.metrics.keys()
    assert all(torch.equal(first.metrics[name], second.metrics[name]) for name in first.metrics)


def test_state_round_trip_goes_on_as_if_never_interrupted() -> None:
    head, data = nn.Linear(D, C), batch()
    whole, first, second = (FGMix(D, head, lr=1e-2) for _ in range(3))
    first.load_state_dict(whole.state_dict())

    def run(fgmix: FGMix, seeds: range) -> None:
        for seed in seeds:
            fgmix(*data, head, torch.Generator().manual_seed(seed))

    run(whole, range(4))
    run(first, range(2))
    buffer = io.BytesIO()
    torch.save(first.state_dict(), buffer)
    buffer.seek(0)
    second.load_state_dict(torch.load(buffer, weights_only=True))
    run(second, range(2, 4))
    assert not changed(state(whole), second)


def test_evaluation_mode_mixes_and_changes_nothing() -> None:
    head = nn.Linear(D, C)
    fgmix = FGMix(D, head, lr=1e-2).eval()
    before = state(fgmix)
    with torch.no_grad():
        mixed = fgmix(*batch(), head)
    assert mixed.z.shape == (32, D)
    assert not changed(before, fgmix)


@pytest.mark.parametrize("kind", HEADS)
def test_any_number_of_samples_per_domain_and_any_ids(kind: str) -> None:
    head = HEADS[kind]()
    y = torch.tensor([0, 1, 1, 2, 0, 1, 3, 1])
    domains = torch.tensor([9, 9, 9, 9, -2, -2, -2, 4])  # class 1 alone is in all three; once in two of them
    z = torch.randn(8, D, requires_grad=True)
    mixed = FGMix(D, head, lr=1e-3, n=5)(z, y, domains, head)
    assert torch.equal(mixed.y, torch.ones(5, dtype=torch.long))
    assert mixed.metrics["mixed"] == 5
    assert all(torch.isfinite(value) for value in mixed.metrics.values())


def test_no_shared_class_mixes_nothing_and_can_still_be_backpropagated() -> None:
    head = nn.Linear(D, C)
    fgmix = FGMix(D, head, lr=1e-2)
    z, y, domains = torch.randn(4, D, requires_grad=True), torch.tensor([0, 1, 2, 3]), torch.tensor([0, 0, 1, 1])
    names = fgmix(*batch(), head).metrics.keys()
    before = state(fgmix)
    mixed = fgmix(z, y, domains, head)
    assert mixed.z.shape == (0, D)
    assert mixed.y.shape == (0,)
    assert mixed.metrics.keys() == names
    assert mixed.metrics["mixed"] == 0
    assert changed(before, fgmix) == {"prior"}
    (mixed.policy_loss + mixed.discriminator_loss).backward()
    cross_entropy(head(torch.cat([z, mixed.z])), torch.cat([y, mixed.y])).backward()
    assert head.weight.grad.abs().sum() > 0


def test_fewer_domains_than_the_batch_has() -> None:
    """k' = 2 of 3: each mixed code has two members, and a class that two domains hold is enough."""
    head = nn.Linear(D, C)
    y, domains = torch.tensor([0, 1, 0, 2, 3, 3]), torch.tensor([0, 0, 1, 1, 2, 2])
    z = torch.randn(6, D, requires_grad=True)
    assert FGMix(D, head)(z, y, domains, head).metrics["mixed"] == 0
    mixed = FGMix(D, head, domains_per_tuple=2, n=7)(z, y, domains, head)
    assert torch.equal(mixed.y, torch.zeros(7, dtype=torch.long))
    (gradient,) = torch.autograd.grad(mixed.z.sum(), z)
    assert gradient.abs().sum(1).nonzero().flatten().tolist() == [0, 2]


@pytest.mark.parametrize("kind", HEADS)
def test_bfloat16_autocast_leaves_the_policy_in_float32(kind: str) -> None:
    """The policy sees the rounded codes, but computes with them as it would without autocast."""
    head = HEADS[kind]()
    featurizer = nn.Linear(5, D)
    _, y, domains = batch()
    x = torch.randn(len(y), 5)
    a, b = FGMix(D, head), FGMix(D, head)
    b.load_state_dict(a.state_dict())
    with torch.autocast("cpu", torch.bfloat16):
        z = featurizer(x)
        inside = a(z, y, domains, head, torch.Generator().manual_seed(2))
        loss = cross_entropy(head(torch.cat([z, inside.z])), torch.cat([y, inside.y]))
    loss.backward()
    assert z.dtype == inside.z.dtype == torch.bfloat16
    outside = b(z.detach().float(), y, domains, head, torch.Generator().manual_seed(2))
    for name, value in outside.metrics.items():
        torch.testing.assert_close(inside.metrics[name], value)
    torch.testing.assert_close(inside.z, outside.z.bfloat16())


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("scale", ["raw", "rms"])
def test_far_settings_stay_finite(kind: str, scale: Any) -> None:
    """λ₀ = 8, γ = 100, one sample per class, a saturated discriminator, large codes, a large η₂; 20 steps."""
    head = HEADS[kind]()
    fgmix = FGMix(D, head, lam=8.0, gamma=100.0, scale=scale, lr=1e-2)
    with torch.no_grad():
        fgmix.discriminator.second.bias.fill_(1e4)
    y, domains = torch.arange(C).repeat(3), torch.arange(3).repeat_interleave(C)
    for _ in range(20):
        mixed = fgmix(torch.randn(3 * C, D, requires_grad=True) * 100, y, domains, head)
        assert all(torch.isfinite(value) for value in mixed.metrics.values())
        assert torch.isfinite(mixed.z).all()
    assert all(torch.isfinite(t).all() for t in state(fgmix).values())


def test_the_generator_is_the_only_source_of_chance() -> None:
    head, data = nn.Linear(D, C), batch()
    for weights in ("learned", "dirichlet"):
        fgmix = FGMix(D, head, weights=weights).eval()
        before = torch.get_rng_state()
        first, second = (fgmix(*data, head, torch.Generator().manual_seed(4)) for _ in range(2))
        assert torch.equal(first.z, second.z)
        assert torch.equal(first.policy_loss, second.policy_loss)
        assert torch.equal(before, torch.get_rng_state())


def test_double_precision_follows_the_module() -> None:
    head, (z, y, domains) = nn.Linear(D, C).double(), batch()
    mixed = FGMix(D, head, lr=1e-3).double()(z.double(), y, domains, head)
    assert mixed.z.dtype == mixed.policy_loss.dtype == torch.float64


@pytest.mark.parametrize("kind", HEADS)
# A compiled module warns when it is handed a tensor that is no leaf; the message is torch's own.
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_compiled_networks(kind: str) -> None:
    """Featurizer and classifier compiled each, and a model compiled whole that holds FGMix: same numbers as plain."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.featurizer, self.classifier = nn.Linear(5, D), HEADS[kind]()
            self.fgmix = FGMix(D, self.classifier, lr=1e-2)

        def forward(self, x: Tensor, y: Tensor, domains: Tensor, g: Any, h: Any) -> Tensor:
            z = g(x)
            mixed = self.fgmix(z, y, domains, h)
            return cross_entropy(h(torch.cat([z, mixed.z])), torch.cat([y, mixed.y]))

    plain, parts, whole = Model(), Model(), Model()
    for other in (parts, whole):
        other.load_state_dict(plain.state_dict())
    _, y, domains = batch()
    x = torch.randn(len(y), 5)
    compiled = [torch.compile(m, backend="eager") for m in (parts.featurizer, parts.classifier, whole)]
    losses = []
    for call in (
        lambda: plain(x, y, domains, plain.featurizer, plain.classifier),
        lambda: parts(x, y, domains, compiled[0], compiled[1]),
        lambda: compiled[2](x, y, domains, whole.featurizer, whole.classifier),
    ):
        torch.manual_seed(0)
        losses.append(call())
        losses[-1].backward()
    for model, loss in ((parts, losses[1]), (whole, losses[2])):
        torch.testing.assert_close(loss, losses[0])
        for p, q in zip(plain.parameters(), model.parameters()):
            torch.testing.assert_close(q, p)
            torch.testing.assert_close(q.grad, p.grad)


def test_a_number_of_classes_stands_for_a_linear_head() -> None:
    head = nn.Linear(D, C)
    assert FGMix(D, C, lr=1e-3)(*batch(), head).z.shape == (32, D)


# γ relative to the margin


def separable() -> tuple[Tensor, Tensor, Tensor]:
    """A batch whose classes a linear head can tell apart."""
    z, y, domains = batch()
    return z.detach() + 4 * torch.eye(C, D)[y], y, domains


def trained_head(head: nn.Module, z: Tensor, y: Tensor) -> nn.Module:
    """A head that has learned the labels y."""
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        cross_entropy(head(z.detach()), y).backward()
        optimizer.step()
    return head


def median_margin(head: nn.Module, z: Tensor, y: Tensor) -> float:
    rows = [(o[t] - torch.cat([o[:t], o[t + 1 :]]).max()).item() for o, t in zip(head(z).detach(), y.tolist())]
    return torch.tensor(rows).quantile(0.5).item()


def test_gamma_makes_the_noise_half_the_median_margin_of_the_first_batch_and_stays() -> None:
    z, y, domains = separable()
    head = trained_head(nn.Linear(D, C), z, y)
    fgmix = FGMix(D, head, lr=1e-3)
    mixed = fgmix(z, y, domains, head)
    margin, P = median_margin(head, z, y), D * C + C
    norm = torch.cat([z, torch.ones(len(z), 1)], 1).norm(dim=1).quantile(0.5).item()
    assert margin > 0
    assert fgmix.gamma.item() == pytest.approx(0.5 * margin * math.sqrt(P) / norm, rel=1e-5)
    assert mixed.metrics["noise_to_margin"].item() == pytest.approx(0.5, rel=1e-5)
    first = fgmix.gamma.item()
    later = fgmix(3 * z, y, domains, head)
    assert fgmix.gamma.item() == first
    larger = math.sqrt(P) * median_margin(head, 3 * z, y)
    norm = torch.cat([3 * z, torch.ones(len(z), 1)], 1).norm(dim=1).quantile(0.5).item()
    assert later.metrics["noise_to_margin"].item() == pytest.approx(first * norm / larger, rel=1e-5)


def test_gamma_falls_back_to_the_paper_s_middle_where_the_margin_is_not_positive() -> None:
    z, y, domains = separable()
    head = trained_head(nn.Linear(D, C), z, (y + 1) % C)
    assert median_margin(head, z, y) < 0
    fgmix = FGMix(D, head)
    mixed = fgmix(z, y, domains, head)
    assert fgmix.gamma.item() == pytest.approx(10 * math.sqrt((D * C + C) / 14_343))
    assert mixed.metrics["noise_to_margin"] == 0


@pytest.mark.parametrize("kind", HEADS)
def test_an_explicit_gamma_is_taken_as_it_is(kind: str) -> None:
    z, y, domains = separable()
    head = trained_head(HEADS[kind](), z, y)
    fgmix = FGMix(D, head, gamma=7.5)
    mixed = fgmix(z, y, domains, head)
    assert fgmix.gamma == 7.5
    assert mixed.metrics["noise_to_margin"] > 0


def test_evaluation_mode_uses_a_relative_gamma_and_does_not_keep_it() -> None:
    z, y, domains = separable()
    head = trained_head(nn.Linear(D, C), z, y)
    fgmix = FGMix(D, head).eval()
    assert fgmix(z, y, domains, head).metrics["noise_to_margin"].item() == pytest.approx(0.5, rel=1e-5)
    assert fgmix.gamma == 0


def test_gamma_is_set_once_across_a_checkpoint() -> None:
    z, y, domains = separable()
    head = trained_head(nn.Linear(D, C), z, y)
    fgmix, resumed = FGMix(D, head), FGMix(D, head)
    fgmix(z, y, domains, head)
    resumed.load_state_dict(fgmix.state_dict())
    resumed(3 * z, y, domains, head)
    assert torch.equal(resumed.gamma, fgmix.gamma)


# Batches that are not finite


def full_state(fgmix: FGMix) -> bytes:
    """Everything that is saved: parameters, averages, γ, the optimiser's moments and counters."""
    buffer = io.BytesIO()
    torch.save(fgmix.state_dict(), buffer)
    return buffer.getvalue()


def broken(what: str, z: Tensor, head: nn.Module) -> tuple[Tensor, nn.Module]:
    """Codes and classifier of a batch that went wrong."""
    z, head = z.detach().clone(), copy.deepcopy(head)
    if what == "a NaN classifier":
        next(head.parameters()).data[0, 0] = math.nan
    elif what == "codes that overflow":
        z *= 1e30
    else:
        z[3, 1] = math.nan if what == "a NaN code" else math.inf
    return z.requires_grad_(), head


WRONG = ["a NaN code", "an infinite code", "a NaN classifier", "codes that overflow"]


def assert_skipped(mixed: Mixed, fgmix: FGMix) -> None:
    """It says so, and an original batch beside it trains as if nothing had been mixed."""
    assert mixed.metrics["skipped"] == 1
    assert mixed.metrics["mixed"] == 0
    assert mixed.metrics.keys() == fgmix.idle_metrics().keys()
    assert all(torch.isfinite(value) for value in mixed.metrics.values())
    head, (z, y, _) = nn.Linear(D, C), batch()
    both = cross_entropy(head(torch.cat([z, mixed.z])), torch.cat([y, mixed.y]))
    torch.testing.assert_close(both, cross_entropy(head(z), y))


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("what", WRONG)
def test_a_batch_that_is_not_finite_leaves_the_state_bit_for_bit(kind: str, what: str) -> None:
    head, (z, y, domains) = HEADS[kind](), batch()
    fgmix = FGMix(D, head, lr=1e-2)
    fgmix(z, y, domains, head)
    before = full_state(fgmix)
    codes, bad_head = broken(what, z, head)
    mixed = fgmix(codes, y, domains, bad_head)
    assert full_state(fgmix) == before
    assert_skipped(mixed, fgmix)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("what", WRONG)
def test_what_follows_a_batch_that_is_not_finite_is_as_if_it_had_not_been(kind: str, what: str) -> None:
    """Also where it is the first one, before γ, the averages and Adam's moments exist."""
    head, (z, y, domains) = HEADS[kind](), batch()
    spared, hit = FGMix(D, head, lr=1e-2), FGMix(D, head, lr=1e-2)
    hit.load_state_dict(spared.state_dict())
    codes, bad_head = broken(what, z, head)
    hit(codes, y, domains, bad_head)
    for seed in range(3):
        for fgmix in (spared, hit):
            fgmix(z, y, domains, head, torch.Generator().manual_seed(seed))
    assert full_state(hit) == full_state(spared)


def test_without_lr_a_batch_that_is_not_finite_gives_losses_that_move_nothing() -> None:
    head, (z, y, domains) = nn.Linear(D, C), batch()
    fgmix = FGMix(D, head)
    fgmix(z, y, domains, head)
    for codes in (z * math.nan, z * 1e30):
        before = state(fgmix)
        mixed = fgmix(codes, y, domains, head)
        fgmix.zero_grad()
        (mixed.policy_loss + mixed.discriminator_loss).backward()
        assert mixed.policy_loss == mixed.discriminator_loss == 0
        assert all(p.grad is None or not p.grad.any() for p in fgmix.parameters())
        assert not changed(before, fgmix)
        assert_skipped(mixed, fgmix)


@pytest.mark.parametrize("weights", ["cosine", "dirichlet"])
def test_fixed_weights_mix_nothing_that_is_not_finite(weights: Any) -> None:
    head, (z, y, domains) = nn.Linear(D, C), batch()
    fgmix = FGMix(D, head, weights=weights, inputs="codes", lam=1e10)
    assert fgmix(z, y, domains, head).metrics["skipped"] == 0
    for codes in (z * math.nan, z * 1e35):  # λ takes the second one over the edge
        assert_skipped(fgmix(codes, y, domains, head), fgmix)


def test_a_batch_that_shares_no_class_is_skipped_too_if_it_is_not_finite() -> None:
    fgmix, y, domains = FGMix(D, C), torch.tensor([0, 1]), torch.tensor([0, 1])
    for value, skipped in ((1.0, 0), (math.nan, 1)):
        before = state(fgmix)
        mixed = fgmix(torch.full((2, D), value), y, domains, nn.Linear(D, C))
        assert mixed.metrics["skipped"] == skipped
        assert bool(changed(before, fgmix)) == (not skipped)


def test_codes_that_are_not_finite_stay_out_of_the_averages_before_mixing_starts() -> None:
    fgmix = FGMix(D, C)
    fgmix.observe(batch()[0])
    before = state(fgmix)
    for value in (math.nan, math.inf, 1e30):
        fgmix.observe(torch.full((4, D), value) * torch.arange(4).unsqueeze(1))
    assert not changed(before, fgmix)


# Mistakes


def call(**changes: Any) -> None:
    """One call with an argument changed."""
    z, y, domains = batch()
    head = nn.Linear(D, C)
    arguments = {"z": z, "y": y, "domains": domains, "classifier": head, **changes}
    FGMix(D, head)(**arguments)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"z": torch.zeros(24, 3)}, r"codes of shape \(N, 6\).*Found \(24, 3\)"),
        ({"z": torch.zeros(24, D, 1, 1)}, r"codes of shape \(N, 6\).*Found \(24, 6, 1, 1\)"),
        ({"z": torch.zeros(24, D, dtype=torch.long)}, "a floating-point type.*int64"),
        ({"z": torch.zeros(0, D), "y": torch.zeros(0).long(), "domains": torch.zeros(0).long()}, r"Found \(0, 6\)"),
        ({"z": [[0.0] * D] * 24}, "`z` should be a tensor. Found list"),
        ({"y": torch.zeros(20).long()}, r"one domain id per code. Found 24 codes, classes of shape \(20,\)"),
        ({"domains": torch.zeros(23).long()}, r"domain ids of shape \(23,\)"),
        ({"y": torch.zeros(20).long(), "domains": torch.zeros(20).long()}, "Found 24 codes"),
        ({"y": torch.zeros(())}, "one class"),
        ({"y": torch.zeros(24)}, r"classes as torch.int64. Found torch.float32. Pass y.long\(\)"),
        ({"y": torch.zeros(24, dtype=torch.int32)}, "classes as torch.int64. Found torch.int32"),
        ({"domains": torch.zeros(24)}, "domain ids as integers. Found torch.float32"),
        ({"y": torch.arange(24)}, "classes from 0 to 3.*Found 0 to 23"),
        ({"y": torch.arange(24) % C - 1}, "classes from 0 to 3.*Found -1 to 2"),
        ({"y": torch.zeros(24, device="meta").long()}, "one device. Found z on cpu and y on meta"),
        ({"classifier": None}, "`classifier` should be a torch.nn.Module"),
        ({"classifier": nn.Linear(D + 1, C)}, "classifier of codes of width 6. Found one of width 7"),
        ({"classifier": nn.Sequential(nn.Linear(D + 1, C))}, "classifier of codes of width 6. Found one that fails"),
        ({"classifier": nn.Sequential(nn.Linear(D, C), nn.Flatten(0))}, r"logits \(N, C\)"),
        ({"classifier": nn.Linear(D, C, bias=False)}, "classifier that FGMix was built for"),
    ],
)
def test_mistakes_in_a_call_are_explained(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        call(**changes)


def test_labels_out_of_range_are_explained_for_a_head_of_several_layers_too() -> None:
    head, (z, y, domains) = HEADS["mlp"](), batch()
    with pytest.raises(UserError, match="classes from 0 to 3"):
        FGMix(D, head)(z, y + 1, domains, head)


@pytest.mark.parametrize(
    "settings",
    [
        {"code_size": -1},
        {"code_size": 0},
        {"code_size": "8"},
        {"code_size": 6.0},
        {"classifier": None},
        {"classifier": 0},
        {"classifier": True},
        {"weights": "random"},
        {"weights": 1},
        {"inputs": "pixels"},
        {"scale": "none"},
        {"n": 0},
        {"n": 2.5},
        {"n": True},
        {"lam": math.nan},
        {"lam": "3"},
        {"gamma": 0.0},
        {"gamma": -1},
        {"gamma": math.inf},
        {"gamma": math.nan},
        {"alpha": 1.5},
        {"alpha": -0.1},
        {"alpha": None},
        {"directions": 0},
        {"directions": 10.0},
        {"domains_per_tuple": 1},
        {"domains_per_tuple": "all"},
        {"lr": 0.0},
        {"lr": math.inf},
    ],
    ids=str,
)
def test_mistakes_in_an_argument_are_explained(settings: dict[str, Any]) -> None:
    ((name, value),) = settings.items()
    with pytest.raises(UserError, match=f"`{name}`") as raised:
        FGMix(**{"code_size": D, "classifier": C, **settings})
    assert repr(value) in str(raised.value)


def test_a_classifier_without_parameters_is_refused() -> None:
    with pytest.raises(UserError, match="classifier with parameters"):
        FGMix(D, nn.Identity())


def test_integers_stand_for_floats() -> None:
    fgmix = FGMix(D, C, lam=1, gamma=10, alpha=0)
    assert fgmix.lam.item() == 1
    assert fgmix.gamma.item() == 10
    assert fgmix.discriminator is None


def test_double_precision_without_a_prior() -> None:
    head, (z, y, domains) = nn.Linear(D, C).double(), batch()
    mixed = FGMix(D, head, alpha=0.0, lr=1e-3).double()(z.double(), y, domains, head)
    assert mixed.policy_loss.dtype == torch.float64


def test_on_an_accelerator_a_batch_without_a_shared_class_only_reaches_the_prior(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There the host does not learn that nothing is mixed: codes are masked, and state moves as on a CPU."""
    classifier, z = nn.Linear(D, C), torch.randn(4, D, generator=torch.Generator().manual_seed(0))
    y, domains = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 0, 1, 1])
    here = FGMix(D, classifier, n=5, lr=1e-2)
    there = copy.deepcopy(here)
    on_cpu = here(z, y, domains, classifier)
    monkeypatch.setattr("fgmix.mixing.tuples.on_host", lambda _: False)
    mixed = there(z, y, domains, classifier)

    assert mixed.y.tolist() == [-100] * 5
    assert not mixed.z.any()
    assert {name: value.item() for name, value in mixed.metrics.items()} == {
        name: value.item() for name, value in on_cpu.metrics.items()
    }
    for (name, a), b in zip(here.named_parameters(), there.parameters()):
        assert torch.equal(a, b), name
    for a, b in zip(here.buffers(), there.buffers()):
        torch.testing.assert_close(a, b)  # there, one operation computes mean and variance


@pytest.mark.parametrize("kind", HEADS)
def test_a_call_that_does_not_measure_mixes_and_learns_the_same(kind: str) -> None:
    """Also the first one, which sets γ."""
    head, (z, y, domains) = HEADS[kind](), batch()
    measuring = FGMix(D, head, lr=1e-2)
    quiet = copy.deepcopy(measuring)
    for seed in range(3):
        loud = measuring(z, y, domains, head, torch.Generator().manual_seed(seed))
        mixed = quiet(z, y, domains, head, torch.Generator().manual_seed(seed), measure=False)
        assert torch.equal(loud.z, mixed.z)
        assert mixed.metrics == {"mixed": loud.metrics["mixed"]}
    assert full_state(quiet) == full_state(measuring)


@pytest.mark.parametrize("kind", HEADS)
def test_a_sketch_makes_the_policy_smaller_and_is_state(kind: str) -> None:
    head, (z, y, domains) = HEADS[kind](), batch()
    fgmix = FGMix(D, head, sketch=2, lr=1e-2)
    assert fgmix.compatibility is not None
    assert (
        sum(fgmix.compatibility.sizes)
        == {"linear": 2 * (D + 1), "without bias": 2 * D, "mlp": 2 * (D + 1 + 5 + 1)}[kind]
    )
    other = FGMix(D, head, sketch=2, lr=1e-2)
    other.load_state_dict(fgmix.state_dict())
    first, second = (each(z, y, domains, head, torch.Generator().manual_seed(0)) for each in (fgmix, other))
    assert torch.equal(first.z, second.z)
    assert full_state(fgmix) == full_state(other)


@pytest.mark.parametrize(
    ("head", "settings"),
    [
        (nn.Sequential(nn.Linear(D, C), nn.LayerNorm(C)), {}),
        (nn.Linear(D, C), {"inputs": "codes"}),
        (C, {"weights": "cosine"}),
    ],
)
def test_a_sketch_needs_gradients_of_one_layer(head: nn.Module | int, settings: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="sketch"):
        FGMix(D, head, sketch=2, **settings)
