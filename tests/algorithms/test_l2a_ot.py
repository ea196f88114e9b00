"""L2A-OT against a twin that goes domain by domain with its own Sinkhorn, and what each update may touch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy
from torch.optim import Adam

from algorithms.toys import batches_of, has_same_state, state_of, toy_algorithm, toy_batches
from fgmix import algorithms
from fgmix.algorithms import Algorithm, Batches
from fgmix.algorithms.l2a_ot import L2AOT
from fgmix.errors import UserError


def l2a_ot(**settings: Any) -> L2AOT:
    """In float64, past the critics' phase unless told otherwise."""
    algorithm = toy_algorithm("l2a_ot", **{"pretrain": 0.0, "width": 4, **settings}).double().train()
    assert isinstance(algorithm, L2AOT)
    return algorithm


def stacked(batches: Batches) -> tuple[Tensor, Tensor]:
    return torch.stack([x for x, _ in batches]), torch.stack([y for _, y in batches])


def naive_cost(a: Tensor, b: Tensor, eps: float = 0.05) -> Tensor:
    """W in the linear domain, costs entry by entry, the plan a constant."""
    cost = torch.stack([torch.stack([1 - cosine_similarity(p, q, dim=0) for q in b]) for p in a])
    kernel = torch.exp(-cost.detach() / eps)
    q = torch.ones(len(b), dtype=kernel.dtype)
    for _ in range(20):
        p = 1 / len(a) / (kernel @ q)
        q = 1 / len(b) / (kernel.T @ p)
    return (p[:, None] * kernel * q * cost).sum()


def naive_terms(algorithm: L2AOT, batches: Batches) -> dict[str, Tensor]:
    """The terms of L_G, a domain at a time."""
    G, C, D = algorithm.G, algorithm.C, algorithm.D
    k = len(batches)
    low = torch.cat([x for x, _ in batches]).amin((0, 2, 3), keepdim=True)
    high = torch.cat([x for x, _ in batches]).amax((0, 2, 3), keepdim=True)

    def d(a: Tensor, b: Tensor) -> Tensor:
        """Of the first two and the last two of four images, each half against the other domain's other half."""
        if not algorithm.config.debiased:
            return naive_cost(a, b)
        across = naive_cost(a[:2], b[2:]) + naive_cost(b[:2], a[2:])
        return across - naive_cost(a[:2], a[2:]) - naive_cost(b[:2], b[2:])

    novelty, cycle, on_class, codes = 0, 0, 0, []
    for e, (x, y) in enumerate(batches):
        u = (x - (low + high) / 2) / ((high - low) / 2)
        fake = G(u, torch.full_like(y, k + e))
        x_fake = fake * (high - low) / 2 + (low + high) / 2
        codes.append(D.features(x_fake))
        novelty = novelty + d(D.features(x).detach(), codes[-1])
        cycle = cycle + (G(fake, torch.full_like(y, e)) - u).abs().mean()
        on_class = on_class + cross_entropy(C(x_fake), y)
    pairs = [d(codes[i], codes[j]) for i in range(k) for j in range(i + 1, k)]
    return {"novelty": novelty, "diversity": sum(pairs) / len(pairs), "cycle": cycle, "class": on_class}


@pytest.mark.parametrize("debiased", [True, False])
def test_generator_follows_the_naive_twin(debiased: bool) -> None:
    """Same terms, and the step of Adam on −λ_d·(novelty + diversity) + λ_c·cycle + λ_CE·class."""
    algorithm = l2a_ot(debiased=debiased, lambda_domain=2.0, lambda_cycle=5.0, lambda_ce=0.5, lr_generator=1e-3)
    batches = batches_of()
    twin = copy.deepcopy(algorithm)
    expected = naive_terms(twin, batches)
    optimizer = Adam(twin.G.parameters(), lr=1e-3, betas=(0.5, 0.999))
    loss = -2 * (expected["novelty"] + expected["diversity"]) + 5 * expected["cycle"] + 0.5 * expected["class"]
    loss.backward(inputs=list(twin.G.parameters()))
    optimizer.step()

    metrics = algorithm.step(batches)

    for name, value in expected.items():
        torch.testing.assert_close(metrics[name], value.detach(), rtol=1e-6, atol=1e-8)
    for ours, theirs in zip(algorithm.G.parameters(), twin.G.parameters()):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_optimisers_forget_fast() -> None:
    """Adam's first step, all that the twin takes, looks the same for every β."""
    algorithm = l2a_ot(lr_generator=1e-4, lr_critics=2e-4)
    for optimizer, lr in ((algorithm.optimizer_G, 1e-4), (algorithm.optimizer_C, 2e-4), (algorithm.optimizer_D, 2e-4)):
        (group,) = optimizer.param_groups
        assert (group["lr"], group["betas"]) == (lr, (0.5, 0.999))


def test_model_learns_from_the_images_made_before_the_generators_step() -> None:
    algorithm, batches = l2a_ot(generated=2), batches_of()
    twin = copy.deepcopy(algorithm)
    twin.range.observe(torch.cat([x for x, _ in batches]))
    x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    some = [(x_e[:2], y_e[:2]) for x_e, y_e in batches]
    novel = [
        twin.range.from_unit(twin.G(twin.range.to_unit(x_e), torch.full_like(y_e, 3 + e)))
        for e, (x_e, y_e) in enumerate(some)
    ]
    optimizer = Adam([*twin.featurizer.parameters(), *twin.classifier.parameters()], lr=1e-3)
    on_novel = cross_entropy(twin.predict(torch.cat(novel).detach()), torch.cat([y_e for _, y_e in some]))
    loss = (cross_entropy(twin.predict(x), y) + on_novel) / 2
    loss.backward()
    optimizer.step()

    metrics = algorithm.step(batches)

    torch.testing.assert_close(metrics["loss"], loss.detach())
    for ours, theirs in zip(algorithm.featurizer.parameters(), twin.featurizer.parameters()):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-7)
    torch.testing.assert_close(algorithm.classifier.weight, twin.classifier.weight, rtol=0, atol=1e-7)


def test_generators_step_moves_the_generator_alone() -> None:
    algorithm, batches = l2a_ot(), batches_of()
    algorithm.range.observe(torch.cat([x for x, _ in batches]))
    others = {n: state_of(m) for n, m in algorithm.named_children() if n != "G"}
    G = state_of(algorithm.G)
    algorithm.update_generator(*stacked(batches))
    assert all(has_same_state(before, getattr(algorithm, name)) for name, before in others.items())
    assert not has_same_state(G, algorithm.G)


def test_models_step_does_not_leak_into_the_generator() -> None:
    algorithm, batches = l2a_ot(), batches_of()
    algorithm.range.observe(torch.cat([x for x, _ in batches]))
    _, x_novel = algorithm.update_generator(*stacked(batches))
    others = {n: state_of(getattr(algorithm, n)) for n in ("G", "C", "D")}
    algorithm.G.zero_grad()
    algorithm.update_model(x_novel, stacked(batches)[1].flatten(), x_novel, stacked(batches)[1].flatten())
    assert all(has_same_state(before, getattr(algorithm, name)) for name, before in others.items())
    assert all(p.grad is None for p in algorithm.G.parameters())


def test_steps_on_novelty_alone_raise_it() -> None:
    algorithm, batches = l2a_ot(lambda_cycle=0.0, lambda_ce=0.0, lr_generator=1e-3), batches_of()
    first, *_, last = (algorithm.step(batches) for _ in range(8))
    assert last["novelty"] + last["diversity"] > first["novelty"] + first["diversity"] + 1e-4


def test_critics_learn_first_and_the_model_takes_erms_step_meanwhile() -> None:
    algorithm, batches = l2a_ot(pretrain=0.2), batches_of()
    erm: Algorithm = toy_algorithm("erm").double().train()
    C, D, G = state_of(algorithm.C), state_of(algorithm.D), state_of(algorithm.G)
    for _ in range(2):  # 0.2 of 10 steps
        assert "critic_domain" in algorithm.step(batches)
        erm.step(batches)
    assert has_same_state(G, algorithm.G)
    assert not has_same_state(C, algorithm.C)
    assert not has_same_state(D, algorithm.D)
    for ours, theirs in zip(algorithm.featurizer.parameters(), erm.featurizer.parameters()):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)

    C, D = state_of(algorithm.C), state_of(algorithm.D)
    assert "novelty" in algorithm.step(batches)
    assert has_same_state(C, algorithm.C)
    assert has_same_state(D, algorithm.D)
    assert not has_same_state(G, algorithm.G)


def test_critics_tell_classes_and_domains_apart() -> None:
    algorithm = l2a_ot(pretrain=0.9, steps=100)
    first, *_, last = (algorithm.step(batches_of(8)) for _ in range(12))
    assert last["critic_domain"] < 0.7 * first["critic_domain"]
    assert last["critic_class"] < first["critic_class"]


def test_backbone_critics_keep_their_statistics_while_the_generator_learns() -> None:
    """Frozen means evaluation mode: gradients pass, batch-norm's statistics stand still."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    algorithm = algorithms.create(
        "l2a_ot", featurizer=net, classifier=nn.Linear(8, 4), n_domains=3, critics="backbone", pretrain=0.5, steps=2
    ).train()
    batches = toy_batches(b=4)
    algorithm.step(batches)
    C, D = state_of(algorithm.C), state_of(algorithm.D)
    statistics = algorithm.featurizer[1].running_mean.clone()
    assert not torch.equal(C["features.1.running_mean"], torch.zeros(8))
    algorithm.step(batches)
    assert has_same_state(C, algorithm.C)
    assert has_same_state(D, algorithm.D)
    assert not torch.equal(statistics, algorithm.featurizer[1].running_mean)


def test_novel_images_stay_within_the_sources_pixels() -> None:
    algorithm, batches = l2a_ot(), batches_of()
    algorithm.step(batches)
    x = torch.cat([x for x, _ in batches])
    _, x_novel = algorithm.generator_terms(*stacked(batches))
    assert (x_novel.amin((0, 2, 3)) >= x.amin((0, 2, 3))).all()
    assert (x_novel.amax((0, 2, 3)) <= x.amax((0, 2, 3))).all()


@pytest.mark.parametrize(("generated", "sizes", "expected"), [(3, (4, 4), 3), (None, (4, 4), 4), (8, (2, 5), 2)])
def test_as_many_images_of_every_domain_are_generated(
    generated: int | None, sizes: tuple[int, int], expected: int
) -> None:
    algorithm = l2a_ot(generated=generated, n_domains=2)
    batches = [(x[:n], y[:n]) for n, (x, y) in zip(sizes, batches_of(5, k=2))]
    x, y = algorithm._to_generate(batches)
    assert x.shape[:2] == y.shape == (2, expected)
    algorithm.step(batches)


@pytest.mark.parametrize("size", [(17, 30), (64, 64), (224, 224)])
def test_any_image_size_and_two_samples_per_domain(size: tuple[int, int]) -> None:
    algorithm = toy_algorithm("l2a_ot", n_domains=2, pretrain=0.0, width=4).train()
    metrics = algorithm.step(toy_batches(2, b=2, shape=(3, *size)))
    assert all(torch.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize(("settings", "b"), [({}, 1), ({"generated": 1}, 4)])
def test_one_image_per_domain_is_refused_or_taken_without_debiasing(settings: dict[str, Any], b: int) -> None:
    with pytest.raises(UserError, match=r"at least 2 samples of each domain\. Found 1"):
        l2a_ot(n_domains=2, **settings).step(batches_of(b, k=2))
    assert torch.isfinite(l2a_ot(n_domains=2, debiased=False, **settings).step(batches_of(b, k=2))["novelty"])
