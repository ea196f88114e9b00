"""Samplers: batches are a pure function of (seed, domain, step), drawn from the pools alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fgmix.data.dataset import Indices
from fgmix.data.sampling import ClassAwareSampler, PairedSampler, UniformSampler
from properties.quickly import quickly


@dataclass(frozen=True)
class Domains:
    """Labels of all samples of each domain, and the training part of each."""

    labels: tuple[Indices, ...]
    pools: tuple[Indices, ...]


@st.composite
def some_domains(draw: st.DrawFn) -> Domains:
    labels, pools = [], []
    for _ in range(draw(st.integers(1, 4))):
        y = np.array(draw(st.lists(st.integers(0, 5), min_size=1, max_size=30)))
        chosen = draw(st.sets(st.integers(0, len(y) - 1), min_size=1))
        labels.append(y)
        pools.append(np.array(sorted(chosen)))
    return Domains(tuple(labels), tuple(pools))


SEEDS, STEPS, BATCHES = st.integers(0, 2**31), st.integers(0, 10_000), st.integers(1, 20)


def samplers(domains: Domains, seed: int, batch: int) -> list[UniformSampler | ClassAwareSampler | PairedSampler]:
    uniform = UniformSampler(seed, domains.pools, batch)
    aware = ClassAwareSampler(seed, domains.pools, domains.labels, batch, 2)
    return [uniform, aware, PairedSampler(uniform, domains.labels), PairedSampler(aware, domains.labels)]


@quickly
@given(some_domains(), SEEDS, STEPS, BATCHES)
def test_batches_come_from_the_training_parts(domains: Domains, seed: int, step: int, batch: int) -> None:
    for sampler in samplers(domains, seed, batch):
        drawn = sampler.draw(step)
        assert [len(indices) for indices in drawn] == [batch] * len(domains.pools)
        assert all(set(indices) <= set(pool) for indices, pool in zip(drawn, domains.pools))


@quickly
@given(some_domains(), SEEDS, STEPS, BATCHES)
def test_a_batch_depends_on_nothing_before_it(domains: Domains, seed: int, step: int, batch: int) -> None:
    for fresh, used in zip(samplers(domains, seed, batch), samplers(domains, seed, batch)):
        used.draw(step + 1)
        for a, b in zip(fresh.draw(step), used.draw(step)):
            np.testing.assert_array_equal(a, b)


@quickly
@given(st.integers(1, 4), st.integers(1, 6), SEEDS, STEPS, BATCHES, st.integers(1, 6))
def test_a_class_aware_batch_has_few_classes(
    domains: int, shared: int, seed: int, step: int, batch: int, most: int
) -> None:
    """At most m, the same in every domain, of those that all domains have."""
    labels = tuple(np.array([*range(shared), 100 + domain, *range(shared)]) for domain in range(domains))
    pools = tuple(np.arange(len(y)) for y in labels)
    drawn = ClassAwareSampler(seed, pools, labels, batch, most).draw(step)
    found = set.union(*(set(y[indices].tolist()) for y, indices in zip(labels, drawn)))
    assert len(found) <= most
    assert domains == 1 or found <= set(range(shared))


@quickly
@given(some_domains(), SEEDS, STEPS, BATCHES)
def test_partners_share_their_class_and_differ_where_they_can(
    domains: Domains, seed: int, step: int, batch: int
) -> None:
    drawn = PairedSampler(UniformSampler(seed, domains.pools, batch), domains.labels).draw(step)
    for labels, pool, indices in zip(domains.labels, domains.pools, drawn):
        half = batch // 2
        for first, partner in zip(indices[:half], indices[batch - half :]):
            assert labels[first] == labels[partner]
            others = [i for i in pool if labels[i] == labels[first] and i != first]
            assert first != partner or not others
