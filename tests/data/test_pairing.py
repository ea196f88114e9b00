"""Batches in which samples come in pairs of one class and domain."""

from __future__ import annotations

import numpy as np
import pytest

from fgmix.data.sampling import ClassAwareSampler, PairedSampler, UniformSampler

LABELS = (np.arange(60) % 6, np.arange(40) % 5, np.array([0, 0, 1, 2, 2, 2]))
POOLS = (np.arange(0, 60, 3), np.arange(5, 40), np.arange(6))  # in the last domain class 1 has one sample


def paired(batch_size: int, seed: int = 0) -> PairedSampler:
    return PairedSampler(UniformSampler(seed, POOLS, batch_size), LABELS)


@pytest.mark.parametrize("b", [1, 2, 5, 8])
def test_partners_are_half_a_batch_away_of_the_same_class_and_never_the_sample_itself_where_there_is_another(
    b: int,
) -> None:
    alone = 0
    for step in range(60):
        for drawn, labels, pool in zip(paired(b).draw(step), LABELS, POOLS, strict=True):
            assert drawn.shape == (b,)
            assert set(drawn) <= set(pool)
            first, second = drawn[: b // 2], drawn[b - b // 2 :]
            assert np.array_equal(labels[first], labels[second])
            itself = first == second
            assert all((labels[pool] == labels[i]).sum() == 1 for i in first[itself])
            alone += int(itself.sum())
    assert (alone > 0) == (b > 1)  # class 1 of the last domain


def test_the_first_half_is_the_other_sampler_s() -> None:
    inner = ClassAwareSampler(3, POOLS, LABELS, 8, 2)
    for step in range(5):
        for drawn, plain in zip(PairedSampler(inner, LABELS).draw(step), inner.draw(step)):
            assert np.array_equal(drawn[:4], plain[:4])


def test_a_draw_depends_on_seed_domain_and_step_alone() -> None:
    sampler = paired(8)
    later_first = [sampler.draw(9), sampler.draw(2)][1]
    for a, b in zip(later_first, paired(8).draw(2)):
        assert np.array_equal(a, b)
    assert not np.array_equal(sampler.draw(2)[0][4:], sampler.draw(3)[0][4:])
    assert not np.array_equal(sampler.draw(2)[0][4:], paired(8, seed=1).draw(2)[0][4:])


def test_partners_are_uniform_over_the_others_of_the_class() -> None:
    """The three samples of class 2, of six: each is the partner of another with probability ½; within 5 deviations."""
    sampler = paired(2)
    pairs = [(i, j) for step in range(1000) for i, j in [sampler.draw(step)[2]] if LABELS[2][i] == 2]
    counts = {pair: pairs.count(pair) for pair in set(pairs)}
    assert set(counts) == {(i, j) for i in (3, 4, 5) for j in (3, 4, 5) if i != j}
    expected = len(pairs) / 6
    assert all(abs(count - expected) < 5 * (expected * 5 / 6) ** 0.5 for count in counts.values())
