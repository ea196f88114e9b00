"""Batches (x, y) that know which samples they hold."""

from __future__ import annotations

from typing import Self

from torch import Tensor


class IndexedBatch(tuple[Tensor, Tensor]):
    """A batch (x, y) with `indices`, the place of each sample in its domain, for methods with `needs_indices`.

    >>> import torch
    >>> x, y = batch = IndexedBatch(torch.zeros(2, 3), torch.tensor([0, 1]), torch.tensor([7, 4]))
    >>> batch.indices.tolist()
    [7, 4]
    """

    indices: Tensor

    def __new__(cls, x: Tensor, y: Tensor, indices: Tensor) -> Self:
        batch = super().__new__(cls, (x, y))
        batch.indices = indices
        return batch


def replace_inputs(batch: tuple[Tensor, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """Return a batch of the same samples with other inputs, such as x in another layout."""
    return IndexedBatch(x, batch[1], batch.indices) if isinstance(batch, IndexedBatch) else (x, batch[1])
