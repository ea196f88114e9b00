"""DDG: both stages against twins that keep a and b apart, as the authors' code does, and what each may touch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Adam

from algorithms.toys import batches_of, has_same_state, state_of, toy_algorithm, toy_batches
from fgmix import algorithms
from fgmix.algorithms import Batches
from fgmix.algorithms.ddg import DDG, PIXEL, draw_pairs, dual_step, exchange, half_away, positives
from fgmix.errors import UserError
from fgmix.networks.generators import discriminator_loss, generator_loss


def ddg(**settings: Any) -> DDG:
    """In float64; no stage 0 unless told otherwise."""
    algorithm = toy_algorithm("ddg", **{"stage0": 0.0, "width": 4, "pairs": 2, **settings}).double().train()
    assert isinstance(algorithm, DDG)
    return algorithm


def whole(batches: Batches) -> tuple[Tensor, Tensor]:
    return torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])


def assert_close_modules(ours: nn.Module, theirs: nn.Module, atol: float = 1e-7) -> None:
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=atol)


def l1(a: Tensor, b: Tensor) -> Tensor:
    """The authors' error: images in [−1, 1] are taken to ImageNet-normalised pixels, whose channels span 1/0.226."""
    return ((a - b) / 2 / 0.226).abs().mean()


def judge(D: nn.Module, fake: Tensor, real: Tensor) -> Tensor:
    """L_D with the authors' penalty, 0.01 times the squared slope in ImageNet-normalised pixels."""
    return discriminator_loss(D, fake, real, penalty=0.01 * (2 * 0.226) ** 2)


# The dual variable and the constraint


def test_dual_variable_grows_to_one_while_the_constraint_is_broken() -> None:
    w = torch.tensor(0.5)
    w = dual_step(w, torch.tensor(1.25), margin=0.25, eta=0.01)
    assert w.item() == pytest.approx(0.51)
    for _ in range(49):
        w = dual_step(w, torch.tensor(1.25), margin=0.25, eta=0.01)
    assert w.item() == pytest.approx(1)
    assert dual_step(w, torch.tensor(1.25), margin=0.25, eta=0.01).item() == 1


def test_dual_variable_fades_to_zero_while_the_constraint_holds() -> None:
    w = torch.tensor(0.5)
    for _ in range(200):
        w = dual_step(w, torch.tensor(0.0), margin=0.25, eta=0.01)
    assert w.item() == pytest.approx(0, abs=1e-5)


# Pairs


def test_pairs_take_as_many_of_every_domain_into_each_half() -> None:
    pair = draw_pairs([5, 4, 6], 2, torch.device("cpu"))
    a, b = pair.chunk(2)
    assert a.tolist() == [0, 1, 5, 6, 9, 10]
    assert sorted(b.tolist()) == [3, 4, 7, 8, 13, 14]


def test_swaps_cross_domains() -> None:
    """The authors' loaders pair domain e with domain e alone; shuffled, every other domain comes up."""
    crossed = 0
    for _ in range(20):
        a, b = draw_pairs([8, 8], 4, torch.device("cpu")).chunk(2)
        crossed += int((a // 8 != b // 8).sum())
    assert 40 < crossed < 120  # 80 expected of 160


@pytest.mark.parametrize(("pairs", "b"), [(2, 2), (2, 3), (4, 6), (None, 1)])
def test_pairs_that_do_not_fit_a_batch_are_refused(pairs: int | None, b: int) -> None:
    least = 2 * (pairs or 1)
    with pytest.raises(UserError, match=f"needs at least {least} images per domain and step. Found {b}"):
        ddg(pairs=pairs).step(batches_of(b))


@pytest.mark.parametrize(("b", "expected"), [(2, 1), (5, 2), (8, 4), (32, 4)])
def test_the_default_takes_four_pairs_or_half_the_batch(b: int, expected: int) -> None:
    assert ddg(pairs=None)._n_pairs(b) == expected


def test_positives_of_a_paired_batch_are_half_a_batch_away() -> None:
    """Classes 0 and 1 come up elsewhere, too, where the sample may be a copy: the partner is not drawn among these."""
    y = torch.tensor([0, 1, 0, 0, 1, 0, 2, 3, 3, 2, 3])  # a batch of six, one of five whose middle has no partner
    for _ in range(20):
        found = positives([6, 5], y)
        assert found[:6].tolist() == [3, 4, 5, 0, 1, 2]
        assert found[[6, 7, 9, 10]].tolist() == [9, 10, 6, 7]
        assert found[8].item() in (7, 10)


def test_positives_of_any_other_batch_are_of_the_domain_first() -> None:
    y = torch.tensor([0, 0, 1, 0, 2, 1, 0, 3])
    drawn = torch.stack([positives([4, 4], y) for _ in range(60)])
    assert (y[drawn] == y).all()
    assert set(drawn[:, 0].tolist()) == {1, 3}  # of the domain, not 6
    assert set(drawn[:, 2].tolist()) == {5}  # the domain has no other
    assert set(drawn[:, 6].tolist()) == {0, 1, 3}
    assert (drawn[:, [4, 7]] == torch.tensor([4, 7])).all()  # alone in their classes


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_half_away_is_its_own_inverse(size: int) -> None:
    away = half_away(torch.arange(size))
    assert torch.equal(away[away], torch.arange(size))
    assert int((away == torch.arange(size)).sum()) == size % 2


# Stage 0


def naive_gan_step(twin: DDG, x_a: Tensor, x_b: Tensor, cycle_weight: float, weights_learn: bool) -> dict[str, Tensor]:
    """Stage 0 with a and b apart, in the order of the authors' code; a real copy of E_v where one is frozen."""
    gen, size = twin.generator, (16, 16)
    E_s = copy.deepcopy(twin.featurizer).eval()
    u_a, u_b = twin.range.to_unit(x_a), twin.range.to_unit(x_b)
    f_a, f_b = E_s(x_a).detach(), E_s(x_b).detach()
    s_a, s_b = gen.E_v(u_a), gen.E_v(u_b)
    x_ab, x_ba = gen.Dec(s_a, f_b, size), gen.Dec(s_b, f_a, size)

    on_D = judge(twin.D, x_ba.detach(), u_a) + judge(twin.D, x_ab.detach(), u_b)
    optimizer_D = Adam(twin.D.parameters(), lr=1e-4)
    on_D.backward()
    optimizer_D.step()

    adversarial = generator_loss(twin.D, x_ba) + generator_loss(twin.D, x_ab)
    reconstruction = l1(gen.Dec(s_a, f_a, size), u_a) + l1(gen.Dec(s_b, f_b, size), u_b)
    if weights_learn:
        s_ab, s_ba = gen.E_v(x_ab.detach()), gen.E_v(x_ba.detach())
    else:
        frozen = copy.deepcopy(gen.E_v)
        s_ab, s_ba = frozen(x_ab), frozen(x_ba)
    f_ab, f_ba = (E_s(twin.range.from_unit(swap)).detach() for swap in (x_ab, x_ba))
    cycle = l1(gen.Dec(s_ab, f_ba, size), u_a) + l1(gen.Dec(s_ba, f_ab, size), u_b)

    loss = adversarial + 0.5 * reconstruction + cycle_weight * cycle
    optimizer = Adam(gen.parameters(), lr=1e-4, betas=(0.0, 0.999), weight_decay=5e-4)
    loss.backward(inputs=list(gen.parameters()))
    optimizer.step()
    return {"loss": loss, "discriminator": on_D, "adversarial": adversarial, "reconstruction": reconstruction} | {
        "cycle": cycle
    }


@pytest.mark.parametrize("seed", [0, 3])
def test_stage_0_follows_the_naive_twin(seed: int) -> None:
    algorithm, batches = ddg(stage0=0.9, steps=100), batches_of()
    algorithm.updates = 48  # past the fifth of 90 steps after which the cycle counts: ω_c = 0.005·(48 − 18)
    twin = copy.deepcopy(algorithm)
    x, _ = whole(batches)
    twin.range.observe(x)
    torch.manual_seed(seed)
    a, b = draw_pairs([4, 4, 4], 2, x.device).chunk(2)
    weights_learn = torch.rand(()).item() < 0.5
    assert weights_learn == (seed == 3)  # both sides of the coin are tested
    expected = naive_gan_step(twin, x[a], x[b], cycle_weight=0.15, weights_learn=weights_learn)

    torch.manual_seed(seed)
    metrics = algorithm.step(batches)

    for name, value in expected.items():
        torch.testing.assert_close(metrics[name], value.detach(), msg=name)
    assert_close_modules(algorithm.D, twin.D)
    assert_close_modules(algorithm.generator, twin.generator)


def batch_norm_ddg(**settings: Any) -> DDG:
    """A featurizer with batch-norm, whose statistics would move in any pass in training mode."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    algorithm = algorithms.create(
        "ddg", featurizer=net, classifier=nn.Linear(8, 4), n_domains=3, width=4, pairs=2, lr=1e-3, **settings
    ).train()
    assert isinstance(algorithm, DDG)
    return algorithm


def test_stage_0_leaves_the_model_bit_identical() -> None:
    algorithm = batch_norm_ddg(stage0=0.5, steps=10)
    before = {name: state_of(module) for name, module in algorithm.named_children()}
    for _ in range(5):
        algorithm.step(toy_batches(b=4))
    moved = {name for name, state in before.items() if not has_same_state(state, getattr(algorithm, name))}
    assert moved == {"generator", "D", "range"}
    assert algorithm.featurizer.training


def test_learning_rates_fall_at_six_and_nine_tenths_of_stage_0_and_return_in_stage_1() -> None:
    algorithm = ddg(stage0=0.5, steps=20)  # ten steps of stage 0
    seen = []
    for updates in range(11):
        algorithm.updates = updates
        algorithm.step(batches_of(4))
        seen.append(algorithm.optimizer_generator.param_groups[0]["lr"])
    assert seen == pytest.approx([1e-4] * 6 + [1e-5] * 3 + [1e-6] + [1e-4])


def test_optimisers_are_the_authors() -> None:
    """Adam's first step, all that the twins take, looks the same for every β."""
    algorithm = ddg()
    (of_D,), (of_gen,) = algorithm.optimizer_D.param_groups, algorithm.optimizer_generator.param_groups
    assert (of_D["lr"], of_D["betas"], of_D["weight_decay"]) == (1e-4, (0.9, 0.999), 0)
    assert (of_gen["lr"], of_gen["betas"], of_gen["weight_decay"]) == (1e-4, (0.0, 0.999), 5e-4)


def test_cycle_weight_rises_after_a_fifth_of_stage_0() -> None:
    algorithm = ddg(stage0=0.5, steps=4000)
    weights = []
    for algorithm.updates in (0, 400, 401, 500, 1999):
        weights.append(algorithm._cycle_weight())
    assert weights == pytest.approx([0, 0, 0.005, 0.5, 2])


def test_the_unit_of_errors_is_the_authors() -> None:
    """Their pixels are (p − mean)/deviation of p in [0, 1], ours 2p − 1; the deviations are 0.229, 0.224, 0.225."""
    assert pytest.approx(sum(0.5 / deviation for deviation in (0.229, 0.224, 0.225)) / 3, rel=1e-3) == PIXEL
    assert DDG.Config().margin == 0.25


def test_reconstruction_improves_in_stage_0() -> None:
    algorithm, batches = ddg(stage0=0.9, steps=100, lr_generator=3e-3), batches_of()
    first, *_, last = (algorithm.step(batches) for _ in range(15))
    assert last["reconstruction"] < 0.8 * first["reconstruction"]


# Stage 1


@pytest.mark.parametrize("swap_label", ["structure", "semantics"])
def test_stage_1_follows_the_naive_twin(swap_label: str) -> None:
    algorithm, batches = ddg(swap_label=swap_label, margin=0.5, lr_generator=1e-3), batches_of()
    algorithm.step(batches)  # the snapshot and what has moved since differ
    algorithm.optimizer = Adam([*algorithm.featurizer.parameters(), *algorithm.classifier.parameters()], lr=1e-3)
    algorithm.optimizer_generator = Adam(algorithm.generator.parameters(), lr=1e-3)
    twin, size = copy.deepcopy(algorithm), (16, 16)
    (x, y), gen, h, E_s = whole(batches), twin.generator, twin.classifier, twin.featurizer
    torch.manual_seed(5)
    a, b = draw_pairs([4, 4, 4], 2, x.device).chunk(2)
    positive = positives([4, 4, 4], y)

    def r(i: Tensor) -> Tensor:
        u = twin.range.to_unit(x[i])
        painted = gen.Dec(gen.E_v(u), E_s(x[positive[i]]), size)
        return torch.stack([l1(one, image) for one, image in zip(painted, u)])

    def swapped(i: Tensor, j: Tensor) -> Tensor:
        """Variation of i, semantics of j."""
        s = twin.snapshot_generator.E_v(twin.range.to_unit(x[i]))
        f = twin.snapshot_E_s(x[j])
        return twin.range.from_unit(twin.snapshot_generator.Dec(s, f, size)).detach()

    r_a, r_b = r(a), r(b)
    w = min(max(twin.w.item() + 0.01 * (r_a.mean().item() - 0.5), 0), 1)
    x_ab, x_ba = swapped(a, b), swapped(b, a)
    of_a, of_b = (x_ab, x_ba) if swap_label == "structure" else (x_ba, x_ab)
    loss = 4 * cross_entropy(h(E_s(x)), y)
    loss = loss + w * ((r_a - 0.5).clamp(min=0).mean() + (r_b - 0.5).clamp(min=0).mean())
    loss = loss + 0.5 * (cross_entropy(h(E_s(of_a)), y[a]) + cross_entropy(h(E_s(of_b)), y[b]))
    optimizer = Adam([*E_s.parameters(), *h.parameters(), *gen.parameters()], lr=1e-3)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    torch.manual_seed(5)
    metrics = algorithm.step(batches)

    assert metrics["constraint"] > 0
    assert metrics["w"].item() == pytest.approx(w, abs=1e-7)
    torch.testing.assert_close(metrics["loss"], loss.detach(), rtol=1e-6, atol=0)
    for module in ("featurizer", "classifier", "generator"):
        assert_close_modules(getattr(algorithm, module), getattr(twin, module))


def test_stage_1_leaves_the_discriminator_and_the_snapshot() -> None:
    algorithm, batches = batch_norm_ddg(stage0=0.2, steps=10), toy_batches(b=4)
    for _ in range(3):
        algorithm.step(batches)  # the third begins stage 1
    frozen = {n: state_of(getattr(algorithm, n)) for n in ("D", "snapshot_E_s", "snapshot_generator")}
    learning = {n: state_of(getattr(algorithm, n)) for n in ("featurizer", "classifier", "generator")}
    w = algorithm.w.clone()
    algorithm.step(batches)
    assert all(has_same_state(state, getattr(algorithm, name)) for name, state in frozen.items())
    assert not any(has_same_state(state, getattr(algorithm, name)) for name, state in learning.items())
    assert algorithm.w != w


def test_snapshot_is_the_generator_of_stage_0s_end_and_part_of_the_state() -> None:
    algorithm, batches = ddg(stage0=0.2, steps=10), batches_of()
    algorithm.step(batches)
    algorithm.step(batches)
    generator = state_of(algorithm.generator)
    assert not has_same_state(generator, algorithm.snapshot_generator)
    algorithm.step(batches)
    assert has_same_state(generator, algorithm.snapshot_generator)
    saved = algorithm.state_dict()
    assert {"w", "snapshot_E_s.net.stem.0.weight", "snapshot_generator.Dec.head.0.weight"} <= saved.keys()


def test_generators_optimiser_starts_afresh_in_stage_1() -> None:
    algorithm = ddg(stage0=0.2, steps=10)
    for _ in range(3):
        algorithm.step(batches_of(4))
    assert {int(state["step"]) for state in algorithm.optimizer_generator.state.values()} == {1}


# Inputs


@pytest.mark.parametrize("size", [(17, 30), (64, 64), (224, 224)])
@pytest.mark.parametrize("stage0", [0.0, 0.9])
def test_any_image_size_and_two_samples_per_domain(size: tuple[int, int], stage0: float) -> None:
    algorithm = toy_algorithm("ddg", n_domains=2, stage0=stage0, width=4).train()
    algorithm.updates = 4 if stage0 else 0  # past the fifth of stage 0 without a cycle
    metrics = algorithm.step(toy_batches(2, b=2, shape=(3, *size)))
    assert all(torch.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize(("side", "downs"), [(12, 2), (24, 4)])
def test_images_too_small_for_the_networks_are_refused(side: int, downs: int) -> None:
    with pytest.raises(UserError, match=f"{side}×{side}"):
        toy_algorithm("ddg", downs=downs).step(toy_batches(shape=(3, side, side)))


def test_the_halves_are_exchanged() -> None:
    pair = torch.arange(6).view(6, 1)
    assert torch.equal(exchange(exchange(pair)), pair)
    assert exchange(pair)[:3].flatten().tolist() == [3, 4, 5]
