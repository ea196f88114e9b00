"""Same-class tuples: which samples of a batch are mixed with each other."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from fgmix.errors import UserError, bad_value

IGNORED = -100  # the class that `torch.nn.functional.cross_entropy` ignores


def draw_tuples(
    y: Tensor,
    domains: Tensor,
    n: int,
    domains_per_tuple: int | None = None,
    generator: torch.Generator | None = None,
    *,
    n_classes: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Draw n tuples of samples that share a class and come from different domains.

    Each tuple is sampled independently and uniformly:

    1. a class that occurs in at least k' domains of the batch;
    2. k' of the domains in which it occurs, without replacement (all of them if k' = k);
    3. one sample of the class from each of these domains.

    Two tuples may be equal. Each row of the result is in ascending order of domain ids.

    Args:
        y: classes (N,).
        domains: domain ids (N,), any integers; a domain may have any number of samples. Preferably on the CPU, even for
            `y` on a GPU: their number k determines shapes, and counting them on a GPU synchronises.
        n: number of tuples.
        domains_per_tuple: k', at least 2; None for k, the number of domains in the batch.
        generator: on the device of `y`; None for torch's global one.
        n_classes: C if the classes are 0…C − 1, so that no shape depends on them and nothing synchronises with a GPU;
            None for any integers.

    Returns:
        Indices into the batch (n, k') and the classes of the tuples (n,). Both are empty if the batch has fewer than k'
        domains, or only one. If no class occurs in k' domains, they are empty on a CPU; on other devices every class is
        then `IGNORED`.

    >>> y, domains = torch.tensor([0, 1, 2, 1, 3]), torch.tensor([0, 0, 0, 1, 1])
    >>> index, labels = draw_tuples(y, domains, n=2)
    >>> index.tolist(), labels.tolist()
    ([[1, 3], [1, 3]], [1, 1])
    """
    _check(y, domains, domains_per_tuple)
    if n_classes is None:
        values, rows = torch.unique(y, return_inverse=True)
        index, row = draw_tuples(rows, domains, n, domains_per_tuple, generator, n_classes=len(values))
        return index, torch.where(row < 0, row, values[row.clamp(min=0)])
    ids, e = torch.unique(domains.cpu(), return_inverse=True)
    k = len(ids)
    size = k if domains_per_tuple is None else domains_per_tuple
    order, starts, counts = _sort_cells(y, e.to(y.device, non_blocking=True), n_classes, k)
    eligible = counts.amin(1) if size == k else (counts > 0).sum(1) >= size  # where not zero
    row = _draw_rows(eligible, n, generator) if k >= max(size, 2) else y[:0]
    if len(row) == 0:
        return y.new_empty((0, size), dtype=torch.long), row
    at = row if on_host(y) else row.clamp(min=0)
    sizes, first = counts[at], starts[at]  # (n, k)
    if size < k:
        chosen = _subsets(sizes > 0, size, generator)
        sizes, first = sizes.gather(1, chosen), first.gather(1, chosen)
    uniform = torch.rand(sizes.shape, generator=generator, device=y.device)
    place = first + (uniform * sizes).long()
    return order[place if on_host(y) else place.clamp(max=len(y) - 1)], row  # beyond it only if no class is eligible


def _check(y: Tensor, domains: Tensor, domains_per_tuple: int | None) -> None:
    if y.ndim != 1 or y.shape != domains.shape:
        raise UserError(
            f"Expected one class and one domain id per sample. Found shapes {tuple(y.shape)} and "
            f"{tuple(domains.shape)}. Pass two vectors of the batch's length."
        )
    if domains_per_tuple is not None and domains_per_tuple < 2:
        raise bad_value("domains_per_tuple", "at least 2", domains_per_tuple)


def _sort_cells(y: Tensor, e: Tensor, n_classes: int, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sort samples by (class, domain): the order (N,), and the start and length of each cell (c, e), both (C, k)."""
    key, order = torch.sort(torch.add(e, y, alpha=k), stable=True)
    bounds = torch.searchsorted(key, _count_to(n_classes * k + 1, y.device))
    return order, bounds[:-1].view(-1, k), bounds.diff().view(-1, k)


@lru_cache(16)
def _count_to(n: int, device: torch.device) -> Tensor:
    """Return 0, …, n − 1."""
    return torch.arange(n, device=device)


def _draw_rows(eligible: Tensor, n: int, generator: torch.Generator | None) -> Tensor:
    """Draw n eligible rows uniformly with replacement. If none is eligible: none on a CPU, else n times `IGNORED`."""
    if on_host(eligible):
        rows = eligible.nonzero().squeeze(1)
        return rows[torch.randint(len(rows), (n,), generator=generator)] if len(rows) else rows
    rank = (eligible > 0).cumsum(0)
    row = _rows_at(rank, torch.rand(n, generator=generator, device=eligible.device))
    return torch.where(rank[-1] > 0, row, IGNORED)


def _rows_at(rank: Tensor, uniform: Tensor) -> Tensor:
    """Return the eligible rows at the quantiles u ∈ [0, 1) of their list, without reading their number; `rank` counts
    those up to each row.

    A product u·size, here and above, never rounds up to the size, because u ≤ 1 − 2⁻²⁴ in float32.

    >>> _rows_at(torch.tensor([0, 1, 2, 2]), torch.tensor([0.0, 0.4, 0.5, 0.9])).tolist()
    [1, 1, 2, 2]
    """
    return torch.searchsorted(rank, (uniform * rank[-1]).long() + 1)


def distinct_samples(index: Tensor) -> tuple[Tensor | slice, Tensor]:
    """Return the samples of a batch to process, (m,), and the positions of those of `index` among them.

    On a CPU, the distinct samples of the tuples: a third fewer for 96 picks out of 96. On other devices, all of the
    batch: counting the distinct ones would synchronise.

    >>> distinct_samples(torch.tensor([[5, 2], [5, 3]]))
    (tensor([2, 3, 5]), tensor([[2, 0],
            [2, 1]]))
    """
    if on_host(index):
        used, position = torch.unique(index, return_inverse=True)
        return used, position
    return slice(None), index


def on_host(tensor: Tensor) -> bool:
    """Whether values of the tensor can be read without synchronising with a device."""
    return tensor.device.type == "cpu"


def _subsets(allowed: Tensor, size: int, generator: torch.Generator | None) -> Tensor:
    """Draw a random subset of `size` allowed columns of each row, ascending: those with the largest random keys."""
    keys = torch.rand(allowed.shape, generator=generator, device=allowed.device)
    return keys.masked_fill(~allowed, -1.0).topk(size, dim=1).indices.sort(dim=1).values
