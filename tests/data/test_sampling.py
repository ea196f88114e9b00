"""Samplers are pure functions of (seed, domain, step) and cover what they should."""

from __future__ import annotations

import numpy as np
import pytest

from fgmix.data.sampling import (
    ClassAwareSampler,
    UniformSampler,
    balancing_weights,
    bound_missing,
    choose_classes_per_batch,
)
from fgmix.seeding import numpy_generator

POOLS = (np.arange(0, 50, 2), np.arange(7))


def test_a_draw_depends_on_seed_domain_and_step_alone() -> None:
    sampler = UniformSampler(3, POOLS, 16)
    later_first = [sampler.draw(9), sampler.draw(2)][1]
    for a, b in zip(later_first, UniformSampler(3, POOLS, 16).draw(2)):
        assert np.array_equal(a, b)
    assert not np.array_equal(sampler.draw(2)[0], sampler.draw(3)[0])
    assert not np.array_equal(sampler.draw(2)[0], UniformSampler(4, POOLS, 16).draw(2)[0])
    same_pool = UniformSampler(3, (POOLS[0], POOLS[0]), 16).draw(0)
    assert not np.array_equal(*same_pool)


def test_draws_are_uniform_over_the_pool_with_replacement() -> None:
    """Frequencies of 7 items in 70,000 draws: each within 5 standard errors of 1/7."""
    sampler = UniformSampler(0, (POOLS[1],), 700)
    counts = np.bincount(np.concatenate([sampler.draw(step)[0] for step in range(100)]), minlength=7)
    error = np.sqrt(70_000 * (1 / 7) * (6 / 7))
    assert (abs(counts - 10_000) < 5 * error).all()


def test_a_batch_may_be_larger_than_the_domain() -> None:
    assert UniformSampler(0, POOLS, 100).draw(0)[1].shape == (100,)


def class_aware(m: int) -> tuple[ClassAwareSampler, tuple[np.ndarray, ...]]:
    labels = (np.arange(60) % 6, np.arange(40) % 5, np.arange(30) % 6)  # domain 1 lacks class 5
    pools = tuple(np.arange(len(y)) for y in labels)
    return ClassAwareSampler(0, pools, labels, 12, m), labels


@pytest.mark.parametrize("m", [1, 3, 50])
def test_class_aware_batches_hold_m_classes_that_all_domains_share(m: int) -> None:
    sampler, labels = class_aware(m)
    seen = set()
    for step in range(20):
        drawn = [set(y[i].tolist()) for y, i in zip(labels, sampler.draw(step))]
        classes = set.union(*drawn)
        assert len(classes) <= min(m, 5)
        assert 5 not in classes
        seen |= classes
    assert seen == {0, 1, 2, 3, 4}


def test_class_aware_falls_back_where_no_class_is_shared() -> None:
    labels = (np.array([0, 0, 1]), np.array([2, 2, 3]))
    sampler = ClassAwareSampler(0, (np.arange(3), np.arange(3)), labels, 4, 2)
    assert [len(indices) for indices in sampler.draw(0)] == [4, 4]


def naive_draw(sampler: ClassAwareSampler, step: int) -> list[np.ndarray]:
    """The definition, which looks at every label of every domain."""
    parts = [labels[pool] for pool, labels in zip(sampler.pools, sampler.labels)]
    counts = {c: sum(c in part for part in parts) for part in parts for c in part.tolist()}
    shared = sorted(c for c in counts if counts[c] == max(counts.values()))
    m = min(sampler.classes_per_batch, len(shared))
    chosen = numpy_generator("classes", sampler.seed, step).choice(shared, size=m, replace=False)
    drawn = []
    for domain, (pool, part) in enumerate(zip(sampler.pools, parts)):
        rng = numpy_generator("batch", sampler.seed, domain, step)
        members = [pool[part == c] for c in chosen if c in part] or [pool]
        which = rng.integers(len(members), size=sampler.batch_size)
        drawn.append(np.array([members[w][rng.integers(len(members[w]))] for w in which]))
    return drawn


@pytest.mark.parametrize("seed", range(20))
def test_class_aware_draws_are_the_naive_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = tuple(rng.integers(0, rng.integers(1, 9), rng.integers(1, 40)) for _ in range(rng.integers(1, 5)))
    pools = tuple(rng.permutation(len(y))[: rng.integers(1, len(y) + 1)] for y in labels)
    sampler = ClassAwareSampler(seed, pools, labels, 7, int(rng.integers(1, 6)))
    for step in range(4):
        for ours, naive in zip(sampler.draw(step), naive_draw(sampler, step), strict=True):
            np.testing.assert_array_equal(ours, naive)


class Spied(np.ndarray):
    """An array that counts how often it is used: indexed, compared, sorted, or anything else."""

    uses = 0

    def __getitem__(self, key: object) -> object:
        Spied.uses += 1
        return np.asarray(self)[key]

    def __array_ufunc__(self, ufunc: object, method: str, *args: object, **kwargs: object) -> object:
        Spied.uses += 1
        return getattr(ufunc, method)(*(np.asarray(arg) if isinstance(arg, Spied) else arg for arg in args), **kwargs)

    def __array_function__(self, function: object, types: object, args: tuple[object, ...], kwargs: object) -> object:
        Spied.uses += 1
        return super().__array_function__(function, types, args, kwargs)


def test_labels_are_read_once_and_not_at_every_step() -> None:
    labels = tuple((np.arange(3000) % 300).view(Spied) for _ in range(2))
    pools = tuple(np.arange(3000).view(Spied) for _ in range(2))
    sampler = ClassAwareSampler(0, pools, labels, 8, 4)
    sampler.draw(0)
    used_once = Spied.uses
    assert used_once > 0
    for step in range(1, 20):
        sampler.draw(step)
    assert Spied.uses == used_once


def test_samples_are_drawn_as_often_as_their_weights_say() -> None:
    pool = np.array([3, 5, 8, 9])
    weights = np.array([1.0, 0.0, 2.0, 1.0])
    sampler = UniformSampler(0, (pool, pool), 2000, (weights, np.ones(4)))
    weighted, plain = sampler.draw(0)
    shares = [(weighted == index).mean() for index in pool]
    assert shares[1] == 0
    np.testing.assert_allclose(shares, weights / 4, atol=0.04)
    np.testing.assert_allclose([(plain == index).mean() for index in pool], 0.25, atol=0.04)


def test_balancing_weights_make_classes_equally_likely() -> None:
    y = np.array([4, 4, 4, 4, 4, 4, 1, 1, 7])
    weights = balancing_weights(y)
    assert weights.sum() == pytest.approx(len(y))
    assert [weights[y == c].sum() for c in (1, 4, 7)] == pytest.approx([3, 3, 3])


def simulate_missing(shares: np.ndarray, b: int, needed: int, batches: int) -> float:
    rng = np.random.default_rng(0)
    present = np.stack([rng.multinomial(b, p, size=batches) > 0 for p in shares])  # (k, batches, C)
    return float((present.sum(0) < needed).all(1).mean())


@pytest.mark.parametrize(
    ("k", "C", "b", "needed"),
    [(3, 65, 32, 3), (5, 345, 32, 5), (5, 345, 32, 2), (3, 7, 4, 3), (4, 30, 16, 3), (2, 2, 1, 2)],
)
@pytest.mark.parametrize("even", [True, False])
def test_the_bound_on_missing_classes_holds_and_is_close(k: int, C: int, b: int, needed: int, even: bool) -> None:
    """Against 4,000 simulated batches: not below them by more than five standard errors, above by 0.1 at most."""
    rng = np.random.default_rng(C)
    shares = np.full((k, C), 1 / C) if even else rng.dirichlet(np.ones(C), size=k)
    found = simulate_missing(shares, b, needed, 4000)
    error = np.sqrt(max(found * (1 - found), 1 / 4000) / 4000)
    assert found - 5 * error <= bound_missing(shares, b, needed) <= found + 0.1


@pytest.mark.parametrize(
    ("k", "C", "b", "m"), [(3, 7, 32, 0), (3, 65, 32, 0), (5, 345, 32, 8), (5, 345, 8, 4), (5, 345, 1, 1), (2, 3, 1, 1)]
)
def test_classes_per_batch_are_as_many_as_are_found_in_all_domains(k: int, C: int, b: int, m: int) -> None:
    assert choose_classes_per_batch(np.full((k, C), 1 / C), b, k) == m
    if m > 1:
        assert simulate_missing(np.full((k, m), 1 / m), b, k, 4000) <= 0.06
