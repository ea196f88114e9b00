"""Same-class tuples: which samples of a batch are mixed with each other."""

from __future__ import annotations

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
) -> tuple[Tensor, Tensor]:
    """Draw n tuples of samples that share a class and come from different domains.

    Each tuple is sampled independently and uniformly:

    1. a class that occurs in at least k' domains of the batch;
    2. k' of the domains in which it occurs, without replacement (all of them if k' = k);
    3. one sample of the class from each of these domains.

    Two tuples may be equal. Each row of the result is in ascending order of domain ids.

    No shape depends on the classes, so that sampling on a GPU does not synchronise with it.

    Args:
        y: classes (N,).
        domains: domain ids (N,), any integers; a domain may have any number of samples. Preferably on the CPU, even for
            `y` on a GPU: their number k determines shapes, and counting them on a GPU synchronises.
        n: number of tuples.
        domains_per_tuple: k', at least 2; None for k, the number of domains in the batch.
        generator: on the device of `y`; None for torch's global one.

    Returns:
        Indices into the batch (n, k') and the classes of the tuples (n,). Both are empty if the batch has fewer than k'
        domains, or only one. If no class occurs in k' domains, they are empty on a CPU; on other devices every class is
        then `IGNORED`.

    >>> y, domains = torch.tensor([0, 1, 2, 1, 3]), torch.tensor([0, 0, 0, 1, 1])
    >>> index, labels = draw_tuples(y, domains, n=2)
    >>> index.tolist(), labels.tolist()
    ([[1, 3], [1, 3]], [1, 1])
    """
    if y.ndim != 1 or y.shape != domains.shape:
        raise UserError(
            f"Expected one class and one domain id per sample. Found shapes {tuple(y.shape)} and "
            f"{tuple(domains.shape)}. Pass two vectors of the batch's length."
        )
    if domains_per_tuple is not None and domains_per_tuple < 2:
        raise bad_value("domains_per_tuple", "at least 2", domains_per_tuple)

    ids, e = torch.unique(domains.cpu(), return_inverse=True)
    e = e.to(y.device, non_blocking=True)
    k = len(ids)
    k_tuple = k if domains_per_tuple is None else domains_per_tuple

    order, counts, starts = _cells(y, e, k)
    eligible = (counts > 0).sum(1) >= k_tuple  # (N,)
    exists = eligible.any()
    if k < max(k_tuple, 2) or (_on_host(y) and not exists):
        return y.new_empty((0, k_tuple), dtype=torch.long), y[:0]

    row = _draw_rows(eligible, n, generator)
    sizes, first = counts[row], starts[row]  # (n, k)
    if k_tuple < k:
        chosen = _subsets(sizes > 0, k_tuple, generator)
        sizes, first = sizes.gather(1, chosen), first.gather(1, chosen)
    uniform = torch.rand(sizes.shape, generator=generator, device=y.device)
    # u < 1, but u·size may round up to size.
    offset = torch.minimum((uniform * sizes).long(), sizes - 1)
    if _on_host(y):
        index = order[first + offset]
        return index, y[index[:, 0]]
    index = order[(first + offset).clamp(min=0)]  # below 0 only if no class is eligible
    return index, torch.where(exists, y[index[:, 0]], IGNORED)


def _cells(y: Tensor, e: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sort samples by (class, domain): the order (N,), and the length and start of each cell (c, e), both (N, k).

    Row c is the c-th class in ascending order. There are at most N classes; the remaining rows are empty.
    """
    key, order = torch.sort(y * k + e, stable=True)
    sorted_y = key.div(k, rounding_mode="floor")
    row = torch.cat([key.new_zeros(1), (sorted_y[1:] != sorted_y[:-1]).cumsum(0)])
    cell = torch.remainder(key, k).add_(row, alpha=k)
    counts = key.new_zeros(len(y) * k).scatter_add_(0, cell, torch.ones_like(cell))
    starts = counts.cumsum(0) - counts
    return order, counts.view(-1, k), starts.view(-1, k)


def _draw_rows(eligible: Tensor, n: int, generator: torch.Generator | None) -> Tensor:
    """Draw n eligible rows uniformly with replacement; arbitrary rows if none is eligible (not on a CPU)."""
    if _on_host(eligible):
        rows = eligible.nonzero().squeeze(1)
        return rows[torch.randint(len(rows), (n,), generator=generator)]
    return _rows_at(eligible, torch.rand(n, generator=generator, device=eligible.device))


def _rows_at(eligible: Tensor, uniform: Tensor) -> Tensor:
    """Return the eligible rows at the quantiles u ∈ [0, 1) of their list, without reading their number.

    >>> _rows_at(torch.tensor([False, True, True, False]), torch.tensor([0.0, 0.4, 0.5, 0.9])).tolist()
    [1, 1, 2, 2]
    """
    rank = eligible.cumsum(0)
    wanted = torch.minimum((uniform * rank[-1]).long() + 1, rank[-1])  # counted from 1
    return torch.searchsorted(rank, wanted)


def distinct_samples(index: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the samples of a batch to process, (m,), and the positions of those of `index` among them.

    On a CPU, the distinct samples of the tuples: a third fewer for 96 picks out of 96. On other devices, all of the
    batch: counting the distinct ones would synchronise.

    >>> distinct_samples(torch.tensor([[5, 2], [5, 3]]), 8)
    (tensor([2, 3, 5]), tensor([[2, 0],
            [2, 1]]))
    """
    if _on_host(index):
        used, position = torch.unique(index, return_inverse=True)
        return used, position
    return torch.arange(size, device=index.device), index


def _on_host(tensor: Tensor) -> bool:
    """Whether values of the tensor can be read without synchronising with a device."""
    return tensor.device.type == "cpu"


def _subsets(allowed: Tensor, size: int, generator: torch.Generator | None) -> Tensor:
    """Draw a random subset of `size` allowed columns of each row, ascending: those with the largest random keys."""
    keys = torch.rand(allowed.shape, generator=generator, device=allowed.device)
    return keys.masked_fill(~allowed, -1.0).topk(size, dim=1).indices.sort(dim=1).values
