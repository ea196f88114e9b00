"""Sample batches as a pure function of (seed, domain, step), without any state to save or restore."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fgmix.data.dataset import Domain, Indices
from fgmix.errors import UserError
from fgmix.seeding import numpy_generator

SampleWeights = npt.NDArray[np.float64]
MOST_MISSED = 0.05  # share of steps that may go without a class that domains share
MOST_CLASSES = 8  # of a class-aware batch that is chosen for a method, as in the FGMix paper's runs on DomainNet


class Sampler(Protocol):
    """Chooses the samples of a step; a method may wrap it (`Algorithm.wrap_sampler`)."""

    def draw(self, step: int) -> Sequence[Indices]:
        """Sample the indices of the step's batch, one array (b,) per source domain."""


@dataclass(frozen=True)
class UniformSampler:
    """b samples of each source domain, with replacement, as in DomainBed.

    The expected mean loss of a batch is the mean loss weighted by `weights`, for any algorithm.
    """

    seed: int
    pools: tuple[Indices, ...]  # for each source domain, the indices of its training part
    batch_size: int  # b; it may exceed the size of a domain
    weights: tuple[SampleWeights, ...] = ()  # relative sampling probabilities of each pool; empty for equal ones

    def draw(self, step: int) -> list[Indices]:
        """Sample the indices of the step's batch, one array (b,) per source domain."""
        batch = []
        for domain, pool in enumerate(self.pools):
            rng = numpy_generator("batch", self.seed, domain, step)
            if self.weights:
                bounds = self._bounds[domain]
                batch.append(pool[np.searchsorted(bounds, rng.random(self.batch_size) * bounds[-1], side="right")])
            else:
                batch.append(pool[rng.integers(len(pool), size=self.batch_size)])
        return batch

    @cached_property
    def _bounds(self) -> list[SampleWeights]:
        """For each source domain, the cumulative sums of its weights, for inverse transform sampling. A sample of
        weight 0 is never chosen."""
        return [np.cumsum(weights) for weights in self.weights]


@dataclass(frozen=True)
class ClassAwareSampler:
    """m classes, the same in every domain, then b samples of them: same-class tuples exist even with many classes.

    Classes are sampled among those that occur in the largest number of source domains (all of them, if there are such
    classes). For a domain without any of the m classes, all of its samples are used in that step.

    """

    seed: int
    pools: tuple[Indices, ...]  # for each source domain, the indices of its training part
    labels: tuple[Indices, ...]  # for each source domain, the labels of all of its samples
    batch_size: int  # b
    classes_per_batch: int  # m

    def draw(self, step: int) -> list[Indices]:
        """Sample the indices of the step's batch, one array (b,) per source domain."""
        shared = self._most_shared
        m = min(self.classes_per_batch, len(shared))
        chosen = numpy_generator("classes", self.seed, step).choice(shared, size=m, replace=False)
        return [self._from_domain(domain, chosen, step) for domain in range(len(self.pools))]

    def _from_domain(self, domain: int, chosen: Indices, step: int) -> Indices:
        rng, by_class = numpy_generator("batch", self.seed, domain, step), self._by_class[domain]
        members = [by_class[c] for c in chosen.tolist() if c in by_class] or [self.pools[domain]]
        which = rng.integers(len(members), size=self.batch_size)
        return np.array([members[w][rng.integers(len(members[w]))] for w in which], dtype=np.int64)

    @cached_property
    def _by_class(self) -> list[dict[int, Indices]]:
        """For each source domain, its training part by class; cached, because DomainNet has 480,000 labels."""
        return _group_by_class(self.pools, self.labels)

    @cached_property
    def _most_shared(self) -> Indices:
        """The classes that occur in the largest number of source domains, sorted."""
        classes, counts = np.unique([c for by_class in self._by_class for c in by_class], return_counts=True)
        most: Indices = classes[counts == counts.max()]
        return most


@dataclass(frozen=True)
class PairedSampler:
    """Batches in which samples come in pairs of the same class and domain.

    Of the b samples that `sampler` chooses from a domain, the last ⌊b/2⌋ are replaced by partners of the first: samples
    i and i + ⌈b/2⌉ have the same class, and differ if the class has another sample in the training part. The expected
    class frequencies do not change.
    """

    sampler: UniformSampler | ClassAwareSampler
    labels: tuple[Indices, ...]  # for each source domain, the labels of all of its samples

    def draw(self, step: int) -> list[Indices]:
        """Sample the indices of the step's batch, one array (b,) per source domain."""
        pairs = []
        for domain, drawn in enumerate(self.sampler.draw(step)):
            rng, half = numpy_generator("partners", self.sampler.seed, domain, step), len(drawn) // 2
            partners = [self._partner(domain, sample, rng) for sample in drawn[:half]]
            pairs.append(np.concatenate([drawn[: len(drawn) - half], np.array(partners, dtype=np.int64)]))
        return pairs

    def _partner(self, domain: int, sample: int, rng: np.random.Generator) -> int:
        members = self._by_class[domain][int(self.labels[domain][sample])]
        others = members[members != sample]
        return int(rng.choice(others if len(others) else members))

    @cached_property
    def _by_class(self) -> list[dict[int, Indices]]:
        return _group_by_class(self.sampler.pools, self.labels)


def weigh_samples(domains: Sequence[Domain], pools: Sequence[Indices], *, balanced: bool) -> tuple[SampleWeights, ...]:
    """Compute the weights of the samples in the training parts of source domains; empty if all are equal.

    `balanced` gives all classes of a domain the same weight.
    """
    if not balanced and all(domain.weights is None for domain in domains):
        return ()
    all_weights = []
    for domain, pool in zip(domains, pools):
        weights = np.ones(len(pool)) if domain.weights is None else domain.weights[pool]
        if not weights.any():
            raise UserError(f"Expected a positive sample weight for training in domain {domain.name!r}. Found none.")
        all_weights.append(weights * balancing_weights(domain.y[pool]) if balanced else weights)
    return tuple(all_weights)


def spread_weights(
    domains: Sequence[Domain], pools: Sequence[Indices], weights: Sequence[SampleWeights]
) -> tuple[SampleWeights, ...]:
    """Return weights of all samples of every domain for the loss: with mean 1 in its training part, 0 elsewhere.

    The expected loss of a uniform batch is then that of a batch that is drawn in proportion to the weights.
    """
    spread = tuple(np.zeros(len(domain)) for domain in domains)
    for each, pool, own in zip(spread, pools, weights, strict=True):
        each[pool] = own / own.mean()
    return spread


def balancing_weights(y: Indices) -> SampleWeights:
    """Compute weights with mean 1 that make all C classes in y equally likely: n / (C · n_c) for n_c samples of one.

    >>> balancing_weights(np.array([0, 0, 0, 2])).tolist()
    [0.6666666666666666, 0.6666666666666666, 0.6666666666666666, 2.0]
    """
    _, which, counts = np.unique(y, return_inverse=True, return_counts=True)
    weights: SampleWeights = (len(y) / (len(counts) * counts))[which]
    return weights


def class_shares(domains: Sequence[Domain], n_classes: int) -> npt.NDArray[np.float64]:
    """Compute the share of every class in every domain, (k, C)."""
    counts = np.stack([np.bincount(domain.y, minlength=n_classes) for domain in domains])
    shares: npt.NDArray[np.float64] = counts / counts.sum(1, keepdims=True)
    return shares


def bound_missing(shares: npt.NDArray[np.float64], batch_size: int, needed: int) -> float:
    """Bound the probability that no class occurs in `needed` domains of a uniform batch, from above.

    Class c occurs among b samples of domain e with probability q_ce = 1 − (1 − p_ce)^b. With S_c the number of domains
    that have it, a sum over independent domains, the bound is

        Π_c P(S_c < needed) ≥ P(S_c < needed for all c),

    because the classes of a domain compete for its b samples (they are negatively associated). `shares` is p (k, C).

    >>> [round(bound_missing(np.full((k, C), 1 / C), 32, k), 2) for k, C in ((5, 345), (3, 65), (3, 7))]
    [1.0, 0.02, 0.0]
    """
    fewer = np.zeros((needed, shares.shape[1]))  # P(S_c = j) for j < needed
    fewer[0] = 1.0
    for q in 1 - (1 - shares) ** batch_size:
        one_more = np.concatenate([np.zeros((1, len(q))), fewer[:-1] * q])
        fewer = fewer * (1 - q) + one_more
    return float(fewer.sum(0).prod())


def choose_classes_per_batch(shares: npt.NDArray[np.float64], batch_size: int, needed: int) -> int:
    """Choose `classes_per_batch` for a method that acts only where `needed` domains share a class.

    0, uniform sampling, unless that would miss such a class in more than 5 % of the steps. Then 8, or fewer where
    batches are too small for 8.
    """
    if bound_missing(shares, batch_size, needed) <= MOST_MISSED:
        return 0
    shared = int(((shares > 0).sum(0) >= needed).sum())
    sizes = range(min(MOST_CLASSES, shared), 1, -1)
    few = (m for m in sizes if bound_missing(np.full((needed, m), 1 / m), batch_size, needed) <= MOST_MISSED)
    return next(few, 1)


def _group_by_class(pools: Sequence[Indices], labels: Sequence[Indices]) -> list[dict[int, Indices]]:
    """Group the indices of every pool by their labels, in their order."""
    groups = []
    for pool, y in zip(pools, labels):
        by_label = pool[np.argsort(y[pool], kind="stable")]
        classes, starts = np.unique(y[by_label], return_index=True)
        groups.append(dict(zip(classes.tolist(), np.split(by_label, starts[1:]))))
    return groups
