"""Batches of a run, made ahead of the step that needs them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from fgmix.data._dataset import Domain, Indices
from fgmix.data.sampling import ClassAwareSampler, UniformSampler
from fgmix.seeding import torch_generator


@dataclass(frozen=True)
class BatchSource:
    """The batches of the source domains: `at(step)` is a pure function of the seed and the step.

    Args:
        domains: the source domains.
        sampler: draws the indices.
        seed: of the augmentation.
    """

    domains: tuple[Domain, ...]
    sampler: UniformSampler | ClassAwareSampler
    seed: int

    def at(self, step: int) -> list[tuple[Tensor, Tensor]]:
        """(x, y) of each source domain at `step`."""
        return [self._batch(d, indices, step) for d, indices in enumerate(self.sampler.draw(step))]

    def _batch(self, d: int, indices: Indices, step: int) -> tuple[Tensor, Tensor]:
        domain = self.domains[d]
        x = domain.inputs.augmented(indices, torch_generator("augment", self.seed, d, step))
        return x, torch.from_numpy(domain.y[indices])

    def ahead(self, first: int, last: int, depth: int = 2) -> Iterator[list[tuple[Tensor, Tensor]]]:
        """Batches of the steps first…last−1, `depth` of them prepared by a thread while the model trains."""
        with ThreadPoolExecutor(max_workers=1) as pool:
            waiting: deque[Future[list[tuple[Tensor, Tensor]]]] = deque()
            try:
                for step in range(first, last):
                    while len(waiting) < depth and step + len(waiting) < last:
                        waiting.append(pool.submit(self.at, step + len(waiting)))
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()
