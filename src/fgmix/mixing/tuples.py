"""Same-class tuples: which samples of a batch are mixed with one another."""

from __future__ import annotations

import torch
from torch import Tensor

from fgmix.errors import UserError, bad_value


def draw_tuples(
    y: Tensor,
    domains: Tensor,
    n: int,
    domains_per_tuple: int | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """n tuples of samples that share a class and come from different domains.

    The rule, for each tuple by itself, every draw uniform:

    1. a class that at least k' domains of the batch hold;
    2. k' of the domains that hold it, without replacement (all of them where k' = k);
    3. one of its samples from each of these domains.

    Tuples are drawn with replacement: two of them may be equal. A column of the result follows the order of the
    domain ids within its row.

    Args:
        y: classes (N,).
        domains: domain ids (N,), any integers; a domain may hold any number of samples.
        n: number of tuples.
        domains_per_tuple: k', at least 2; None for k, the number of domains in the batch.
        generator: on the device of `y`; None for torch's own.

    Returns:
        Indices into the batch (n, k') and the tuples' classes (n,). Both have no row where no class is held by k'
        domains, and where the batch has one domain.

    Example:
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

    ids, e = torch.unique(domains, return_inverse=True)
    classes, c = torch.unique(y, return_inverse=True)
    k = len(ids)
    k_tuple = k if domains_per_tuple is None else domains_per_tuple

    # Samples sorted by (class, domain): cell (c, e) is `counts[c, e]` long and starts at `starts[c, e]`.
    cell = c * k + e
    order = torch.argsort(cell, stable=True)
    counts = torch.bincount(cell, minlength=len(classes) * k)
    starts = (counts.cumsum(0) - counts).view(-1, k)
    counts = counts.view(-1, k)

    eligible = ((counts > 0).sum(1) >= max(k_tuple, 2)).nonzero().squeeze(1)
    if len(eligible) == 0:
        return y.new_empty((0, k_tuple), dtype=torch.long), y[:0]

    row = eligible[torch.randint(len(eligible), (n,), generator=generator, device=y.device)]
    sizes, first = counts[row], starts[row]  # (n, k)
    if k_tuple < k:
        chosen = _subsets(sizes > 0, k_tuple, generator)
        sizes, first = sizes.gather(1, chosen), first.gather(1, chosen)
    uniform = torch.rand(sizes.shape, generator=generator, device=y.device)
    # u < 1, but float rounding can take u·size up to size.
    offset = torch.minimum((uniform * sizes).long(), sizes - 1)
    return order[first + offset], classes[row]


def _subsets(allowed: Tensor, size: int, generator: torch.Generator | None) -> Tensor:
    """A uniform subset of `size` of the allowed columns of each row, ascending: the largest of random keys."""
    keys = torch.rand(allowed.shape, generator=generator, device=allowed.device)
    return keys.masked_fill(~allowed, -1.0).topk(size, dim=1).indices.sort(dim=1).values
