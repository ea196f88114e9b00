"""FGMix in training: ERM before τ, the base loss after it, what moves, and the variants' choices of parts."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from algorithms.properties import assert_resumes_at
from algorithms.toys import linear_algorithm, toy_algorithm, toy_batches
from fgmix import algorithms
from fgmix.algorithms import Algorithm, Batches
from fgmix.algorithms._config import choice, log_uniform
from fgmix.errors import UserError
from fgmix.mixing import draw_tuples
from fgmix.mixing.flatness import margin_gamma
from fgmix.networks import build_classifier, build_featurizer
from reference.literal import gradients_by_loop, pair_scores

VARIANTS = ["fgmix", *(f"fgmix_{v}" for v in "abcdefu")]
LEARNED = ["fgmix", "fgmix_e", "fgmix_f"]


def state(algorithm: Algorithm) -> dict[str, Tensor]:
    return {name: t.clone() for name, t in algorithm.state_dict().items() if isinstance(t, Tensor)}


def moved(before: dict[str, Tensor], algorithm: Algorithm) -> set[str]:
    """First two parts of the names of tensors that changed, such as "mixer.lam"."""
    return {".".join(n.split(".")[:2]) for n, t in state(algorithm).items() if not torch.equal(t, before[n])}


def with_dropout(name: str, **settings: Any) -> Algorithm:
    """An algorithm that draws random numbers in its forward pass; the generator is seeded once, before it is built."""
    torch.manual_seed(3)
    featurizer = build_featurizer("mlp", (5,), dropout=0.5)
    classifier = build_classifier("linear", featurizer.out_features, 3)
    return algorithms.create(name, featurizer=featurizer, classifier=classifier, n_domains=3, steps=10, **settings)


@pytest.mark.parametrize("name", VARIANTS)
def test_before_tau_a_step_is_erm_s_bit_for_bit(name: str) -> None:
    """Losses, weights, optimiser and the generator's state, with dropout and nothing seeded in between."""
    batches = toy_batches(shape=(5,), classes=3)
    runs = []
    for which in ("erm", name):
        algorithm = with_dropout(which).train()
        metrics = [algorithm.step(batches) for _ in range(5)]  # τ = 0.6·10: the sixth mixes
        weights = {n: t for n, t in state(algorithm).items() if n.startswith(("featurizer", "classifier"))}
        runs.append((metrics, weights, algorithm.optimizer.state_dict()["state"], torch.get_rng_state()))
    (erm_metrics, erm_weights, erm_adam, erm_generator), (metrics, weights, adam, generator) = runs
    assert torch.equal(generator, erm_generator)
    for a, b in zip(erm_metrics, metrics):
        assert torch.equal(a["loss"], b["loss"])
        assert b["mixed"] == 0
    assert erm_weights.keys() == weights.keys()
    assert all(torch.equal(erm_weights[n], weights[n]) for n in weights)
    assert all(torch.equal(erm_adam[i][key], adam[i][key]) for i in adam for key in ("exp_avg", "exp_avg_sq"))


def test_building_leaves_the_generator_where_erm_does() -> None:
    with_dropout("erm")
    expected = torch.get_rng_state()
    with_dropout("fgmix")
    assert torch.equal(torch.get_rng_state(), expected)


@pytest.mark.parametrize(("tau", "first"), [(0.0, 0), (0.1, 0), (0.6, 5), (0.55, 5), (1.0, 9)])
def test_mixing_starts_at_step_tau(tau: float, first: int) -> None:
    """The paper counts from 1 and mixes for t ≥ τ: with τ = 6 of 10, five steps come before it."""
    fgmix = linear_algorithm("fgmix", tau=tau)
    batches = toy_batches(shape=(5,), classes=3)
    mixed = [fgmix.step(batches)["mixed"].item() for _ in range(10)]
    assert mixed == [0.0] * first + [32.0] * (10 - first)


def test_metrics_have_the_same_names_on_every_step() -> None:
    for name in VARIANTS:
        algorithm = linear_algorithm(name, tau=0.5)
        batches = toy_batches(shape=(5,), classes=3)
        names = [set(algorithm.step(batches)) for _ in range(10)]
        assert all(found == names[0] for found in names)
        wanted = {"loss", "lam", "extrapolated", "mixed", "entropy", "skipped"}
        wanted |= {"mixed_loss", "mixed_margin", "gradient_ratio", "margin_correlation"}
        wanted |= {"flat", "noise_to_margin", "input_norm"} if name in LEARNED else set()
        wanted |= {"adv", "disc"} if name in ("fgmix", "fgmix_f") else set()
        assert names[0] == wanted


def literal_weights(name: str, fgmix: Algorithm, z: Tensor, y: Tensor, index: Tensor) -> Tensor:
    """ã (n, k) of a variant written out: materialised gradients, a loop over tuples and pairs."""
    g = gradients_by_loop(fgmix.classifier, z, y)
    inputs = z if name in ("fgmix_b", "fgmix_f") else g
    k = index.shape[1]
    if name == "fgmix_u":
        return torch.full(index.shape, 1 / k)
    if name in LEARNED:
        s = pair_scores(lambda pairs: fgmix.mixer.compatibility(*pairs.chunk(2, -1)), inputs[index])
    else:
        rows = [
            [sum(torch.cosine_similarity(inputs[i], inputs[j], 0) for j in row if j != i) for i in row] for row in index
        ]
        s = torch.tensor(rows)
    lam = 1.0 if name in ("fgmix_b", "fgmix_c") else 3.0
    return (lam * torch.softmax(s, 1) - (lam - 1) / k).detach()


@pytest.mark.parametrize("name", ["fgmix", "fgmix_b", "fgmix_c", "fgmix_d", "fgmix_e", "fgmix_f", "fgmix_u"])
@pytest.mark.parametrize("k", [2, 3])
def test_base_loss_and_its_gradients_are_the_literal_ones(name: str, k: int) -> None:
    """(Σ_batch l + Σ_n l(y, h(z_mix)))/(k·b + n) with ã constant: value and gradients of θ and φ to 1e-5."""
    fgmix = toy_algorithm(name, n_domains=k, shape=(5,), tau=0.0, n=9)
    batches = toy_batches(k, shape=(5,))
    x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    domains = torch.arange(k).repeat_interleave(8)
    torch.manual_seed(5)
    index, labels = draw_tuples(y, domains, 9)

    z = fgmix.featurizer(x)
    weights = literal_weights(name, fgmix, z.detach(), y, index)
    z_mix = (weights.unsqueeze(2) * z[index]).sum(1)
    losses = [cross_entropy(fgmix.classifier(c), t, reduction="sum") for c, t in ((z, y), (z_mix, labels))]
    loss = sum(losses) / (8 * k + 9)
    base = [*fgmix.featurizer.parameters(), *fgmix.classifier.parameters()]
    expected = torch.autograd.grad(loss, base)

    torch.manual_seed(5)
    metrics = fgmix.step(batches)
    torch.testing.assert_close(metrics["loss"], loss.detach(), rtol=1e-5, atol=1e-5)
    for p, gradient in zip(base, expected):
        torch.testing.assert_close(p.grad, gradient, rtol=1e-5, atol=1e-5)
    assert metrics["extrapolated"].item() == pytest.approx((weights < 0).any(1).float().mean().item())


def test_variant_a_draws_dirichlet_weights() -> None:
    """No weight below zero, and over 300 tuples an entropy near E[H] of Dirichlet(1, 1, 1), 5/6 nats."""
    metrics = linear_algorithm("fgmix_a", tau=0.0, n=300).step(toy_batches(shape=(5,), classes=3))
    assert metrics["extrapolated"] == 0
    assert metrics["lam"] == 1
    assert metrics["entropy"].item() == pytest.approx(5 / 6, abs=5 * 0.2 / 300**0.5)


def test_variant_a_extrapolates_with_lambda() -> None:
    """λ = 3, k = 3: ã_i < 0 where a_i < 2/9, which none of three uniform weights is with probability (1 − 6/9)²."""
    metrics = linear_algorithm("fgmix_a", tau=0.0, n=300, lam=3).step(toy_batches(shape=(5,), classes=3))
    assert metrics["lam"] == 3
    assert metrics["extrapolated"].item() == pytest.approx(8 / 9, abs=5 * (8 / 81 / 300) ** 0.5)


@pytest.mark.parametrize("name", LEARNED)
def test_gamma_is_relative_to_the_margin_unless_it_is_given(name: str) -> None:
    """The default (and sample 0 of a search) lets the first mixing step set γ; numbers are in the paper's units."""
    assert algorithms.get(name).Config().gamma is None
    batches = [(x + 5 * torch.eye(3, 5)[y], y) for x, y in toy_batches(shape=(5,), classes=3)]
    relative = linear_algorithm(name, tau=0.9, steps=50, lr=0.1)
    seen = [relative.step(batches)["noise_to_margin"].item() for _ in range(46)]
    assert seen[:44] == [0.0] * 44
    assert seen[44] == pytest.approx(0.5, rel=1e-5)
    assert 0 < seen[45] != seen[44]
    explicit = linear_algorithm(name, tau=0.9, steps=50, lr=0.1, gamma=10)
    ratios = [explicit.step(batches)["noise_to_margin"].item() for _ in range(45)]
    assert explicit.mixer.gamma == 10
    assert ratios[44] == pytest.approx(0.5 * 10 / relative.mixer.gamma.item(), rel=1e-4)


@pytest.mark.parametrize("name", LEARNED)
@pytest.mark.parametrize("cut", [4, 5, 6])
def test_gamma_survives_a_resume_around_the_first_mixing_step(name: str, cut: int) -> None:
    assert_resumes_at(name, cut, last=8, tau=0.6)


@pytest.mark.parametrize("name", LEARNED)
def test_codes_that_are_not_finite_do_not_reach_the_policy(name: str) -> None:
    """The base model's loss is NaN, and a run stops; the policy has a zero gradient, its averages stand still."""
    algorithm = linear_algorithm(name, tau=0.0)
    batches = toy_batches(shape=(5,), classes=3)
    algorithm.step(batches)
    before = state(algorithm)
    metrics = algorithm.step([(x * torch.nan, y) for x, y in batches])
    assert metrics["skipped"] == 1
    assert not metrics["loss"].isfinite()
    assert not moved(before, algorithm) & {"mixer.prior", "mixer.gamma"}
    assert all(t.isfinite().all() for n, t in state(algorithm).items() if n.startswith("mixer"))


@pytest.mark.parametrize("name", VARIANTS)
def test_all_and_only_the_parts_of_a_variant_move(name: str) -> None:
    algorithm = linear_algorithm(name, tau=0.0)
    before = state(algorithm)
    algorithm.step(toy_batches(shape=(5,), classes=3))
    expected = {"classifier.weight", "classifier.bias"}
    expected |= {"mixer.compatibility", "mixer.lam", "mixer.gamma"} if name in LEARNED else set()
    expected |= {"mixer.discriminator", "mixer.prior"} if name in ("fgmix", "fgmix_f") else set()
    assert moved(before, algorithm) == expected


def test_each_rate_moves_only_its_own() -> None:
    """With η₂ = 0 nothing of the policy moves, with the base's rate 0 nothing of the base does."""
    batches = toy_batches(shape=(5,), classes=3)
    for still, expected in (
        (1, {"classifier.weight", "classifier.bias", "mixer.prior", "mixer.gamma"}),
        (0, {"mixer.compatibility", "mixer.lam", "mixer.discriminator", "mixer.prior", "mixer.gamma"}),
    ):
        fgmix = linear_algorithm("fgmix", tau=0.0)
        fgmix.optimizer.param_groups[still]["lr"] = 0.0
        before = state(fgmix)
        fgmix.step(batches)
        assert moved(before, fgmix) == expected


def test_updates_use_the_values_of_one_forward_pass() -> None:
    """The policy's update is the same whatever the base's learning rate is, and the other way round."""
    batches = toy_batches(shape=(5,), classes=3)

    def after_a_step(prefix: str, **settings: float) -> dict[str, Tensor]:
        fgmix = linear_algorithm("fgmix", tau=0.0, **settings)
        torch.manual_seed(2)
        fgmix.step(batches)
        return {n: t for n, t in state(fgmix).items() if n.startswith(prefix)}

    for prefix, rates in (("mixer", {"lr": 0.5}), ("classifier", {"eta2": 0.5})):
        one, other = after_a_step(prefix), after_a_step(prefix, **rates)
        assert all(torch.equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_step_without_a_shared_class_is_erm_s(name: str) -> None:
    def disjoint() -> Batches:
        return [(x, torch.full_like(y, e)) for e, (x, y) in enumerate(toy_batches(shape=(5,), classes=3))]

    erm, algorithm = linear_algorithm("erm"), linear_algorithm(name, tau=0.0)
    expected, metrics = erm.step(disjoint()), algorithm.step(disjoint())
    assert metrics["mixed"] == 0
    assert torch.equal(metrics["loss"], expected["loss"])
    assert torch.equal(algorithm.classifier.weight, erm.classifier.weight)


@pytest.mark.parametrize("name", VARIANTS)
def test_classifier_of_several_layers(name: str) -> None:
    torch.manual_seed(0)
    algorithm = algorithms.create(
        name,
        featurizer=nn.Linear(5, 8),
        classifier=nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Dropout(0.1), nn.Linear(6, 3)),
        n_domains=3,
        steps=4,
        tau=0.5,
    )
    algorithm.train()
    for _ in range(4):
        metrics = algorithm.step(toy_batches(shape=(5,), classes=3))
    assert metrics["mixed"] == 32
    assert all(torch.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("settings", [{"lam": 8.0, "gamma": 100.0, "eta2": 1e-2}, {"scale": "rms"}])
def test_far_settings_stay_finite(settings: dict[str, Any]) -> None:
    """One sample a class in each domain, 30 steps."""
    fgmix = linear_algorithm("fgmix", tau=0.0, **settings)
    batches = toy_batches(b=3, shape=(5,), classes=3)
    for _ in range(30):
        metrics = fgmix.step(batches)
        assert all(torch.isfinite(value) for value in metrics.values())


def test_fewer_domains_per_tuple() -> None:
    """k' = 2 of 4 domains: λ shifts by (λ−1)/2, so that the entropy of two equal weights is the largest possible."""
    fgmix = linear_algorithm("fgmix", n_domains=4, tau=0.0, domains_per_tuple=2)
    metrics = fgmix.step(toy_batches(4, shape=(5,), classes=3))
    assert metrics["mixed"] == 32
    assert 0 < metrics["entropy"] <= torch.log(torch.tensor(2.0))


def base_gradients(algorithm: Algorithm, loss: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, [*algorithm.featurizer.parameters(), *algorithm.classifier.parameters()])


@pytest.mark.parametrize("head", [nn.Linear(8, 3), nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 3))])
@pytest.mark.parametrize("n", [0, 9])
def test_flat_base_trains_at_classifiers_around_phi(head: nn.Module, n: int) -> None:
    """The base loss of original and mixed codes, by copies of the classifier that are moved one by one."""
    algorithm = algorithms.create(
        "fgmix_u", featurizer=nn.Linear(5, 8), classifier=copy.deepcopy(head), n_domains=3, tau=0.0, n=n, flat_base=True
    )
    batches = toy_batches(shape=(5,), classes=3)
    x = torch.cat([x for x, _ in batches])
    z = algorithm.featurizer(x)
    y = algorithm.classifier(z).argmax(1)  # a positive margin
    y[:6] = torch.arange(3).repeat(2)
    batches = list(zip(x.split(8), y.split(8)))
    torch.manual_seed(4)
    index, labels = draw_tuples(y, torch.arange(3).repeat_interleave(8), n) if n else (torch.empty(0, 3).long(), y[:0])
    codes, classes = torch.cat([z, z[index].mean(1)]), torch.cat([y, labels])
    gamma = margin_gamma(algorithm.classifier, z, y)
    blocks = [p.shape for p in algorithm.classifier.parameters()]
    loss = torch.zeros(())
    for _ in range(4):
        u = [torch.randn(shape) for shape in blocks]
        length = torch.cat([block.flatten() for block in u]).norm()
        moved = {
            name: p + gamma * block / length for (name, p), block in zip(algorithm.classifier.named_parameters(), u)
        }
        loss = loss + cross_entropy(torch.func.functional_call(algorithm.classifier, moved, (codes,)), classes) / 4
    expected = base_gradients(algorithm, loss)
    torch.manual_seed(4)
    metrics = algorithm.step(batches)
    assert gamma > 0
    torch.testing.assert_close(metrics["loss"], loss.detach())
    parameters = [*algorithm.featurizer.parameters(), *algorithm.classifier.parameters()]
    for p, gradient in zip(parameters, expected):
        torch.testing.assert_close(p.grad, gradient, rtol=1e-4, atol=1e-6)


def test_flat_base_starts_with_mixing_and_runs_without_it_keep_their_names() -> None:
    batches = [(x + 9 * torch.eye(3, 5)[y], y) for x, y in toy_batches(shape=(5,), classes=3)]
    erm, flat = linear_algorithm("erm", lr=0.1), linear_algorithm("fgmix", lr=0.1, flat_base=True, n=0)
    same = [torch.equal(erm.step(batches)["loss"], flat.step(batches)["loss"]) for _ in range(7)]
    assert same == [True] * 5 + [False] * 2
    assert "flat_base" not in algorithms.get("fgmix").Config().as_dict()
    assert algorithms.get("fgmix").Config(flat_base=True).as_dict()["flat_base"] is True


def test_search_spaces_are_the_paper_s() -> None:
    spaces = algorithms.get("fgmix").Config.spaces("paper")
    expected = {
        "eta2": choice(1e-4, 1e-3, 1e-2),
        "lam": choice(1.0, 3.0, 5.0, 8.0),
        "gamma": log_uniform(1, 100),
        "alpha": choice(0.01, 0.03, 0.1, 0.3),
    }
    assert {name: spaces[name] for name in expected} == expected
    assert algorithms.get("fgmix").Config.spaces("domainbed") == spaces  # DomainBed has no FGMix
    assert not expected.keys() & algorithms.get("fgmix_d").Config.spaces("paper").keys()
    assert "alpha" not in algorithms.get("fgmix_e").Config.names()


@pytest.mark.parametrize(
    ("settings", "match"),
    [({"tau": 1.5}, "`tau`"), ({"domains_per_tuple": 4}, "at most the number of source domains, 3"), ({"n": 0}, "`n`")],
)
def test_wrong_settings_are_explained(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(UserError, match=match):
        linear_algorithm("fgmix", **settings)
