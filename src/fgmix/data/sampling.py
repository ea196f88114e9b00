"""Batches as a pure function of (seed, domain, step): nothing to save, nothing to restore."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fgmix.data._dataset import Indices
from fgmix.seeding import numpy_generator


@dataclass(frozen=True)
class UniformSampler:
    """b instances of each source domain, with replacement, as DomainBed draws them.

    Args:
        seed: the run's seed.
        pools: for each source domain, the indices of its training part.
        batch_size: b; it may exceed a domain's size.
    """

    seed: int
    pools: tuple[Indices, ...]
    batch_size: int

    def draw(self, step: int) -> list[Indices]:
        """Indices of the step's batch, one array (b,) per source domain."""
        return [
            pool[numpy_generator("batch", self.seed, domain, step).integers(len(pool), size=self.batch_size)]
            for domain, pool in enumerate(self.pools)
        ]


@dataclass(frozen=True)
class ClassAwareSampler:
    """m classes first, the same for every domain, then b instances of them: same-class tuples exist on many-class data.

    Classes are drawn among those that most source domains have (all of them, where such classes exist); a domain
    without any of the m classes falls back to all of its instances for that step.

    Args:
        seed: the run's seed.
        pools: for each source domain, the indices of its training part.
        labels: for each source domain, the labels of all of its instances.
        batch_size: b.
        classes_per_batch: m.
    """

    seed: int
    pools: tuple[Indices, ...]
    labels: tuple[Indices, ...]
    batch_size: int
    classes_per_batch: int

    def draw(self, step: int) -> list[Indices]:
        """Indices of the step's batch, one array (b,) per source domain."""
        shared = self._most_shared()
        m = min(self.classes_per_batch, len(shared))
        chosen = numpy_generator("classes", self.seed, step).choice(shared, size=m, replace=False)
        return [self._from_domain(domain, chosen, step) for domain in range(len(self.pools))]

    def _from_domain(self, domain: int, chosen: Indices, step: int) -> Indices:
        pool, rng = self.pools[domain], numpy_generator("batch", self.seed, domain, step)
        pool_labels = self.labels[domain][pool]
        members = [pool[pool_labels == c] for c in chosen]
        members = [indices for indices in members if len(indices)] or [pool]
        which = rng.integers(len(members), size=self.batch_size)
        return np.array([members[w][rng.integers(len(members[w]))] for w in which], dtype=np.int64)

    def _most_shared(self) -> Indices:
        seen = [np.unique(labels[pool]) for pool, labels in zip(self.pools, self.labels)]
        classes, counts = np.unique(np.concatenate(seen), return_counts=True)
        most: Indices = classes[counts == counts.max()]
        return most
