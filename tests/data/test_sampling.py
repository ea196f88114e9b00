"""Samplers are pure functions of (seed, domain, step) and cover what they should."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fgmix.data import from_arrays
from fgmix.data.loading import BatchSource
from fgmix.data.sampling import ClassAwareSampler, UniformSampler

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


def test_batches_made_ahead_are_those_made_on_demand() -> None:
    data = from_arrays(np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2, np.arange(40) // 20)
    source = BatchSource(data.domains, UniformSampler(0, (np.arange(20), np.arange(20)), 4), seed=0)
    for step, batches in enumerate(source.ahead(5, 12), start=5):
        for (x, y), (x_now, y_now) in zip(batches, source.at(step)):
            assert torch.equal(x, x_now)
            assert torch.equal(y, y_now)
    assert step == 11


def test_an_error_while_preparing_reaches_the_loop() -> None:
    data = from_arrays(np.zeros((4, 3)), np.arange(4) % 2, np.arange(4) // 2)
    source = BatchSource(data.domains, UniformSampler(0, (np.array([99]), np.array([0])), 4), seed=0)
    with pytest.raises(IndexError):
        next(source.ahead(0, 3))
