"""DomainBed's split of a domain into training part and holdout part, with the same indices; or one by groups.

Samples of one group, such as images of a patient, are similar: in both parts, they would make validation too easy. A
group in the training part of one domain and the holdout part of another does so, too: domains share an order of groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fgmix.data.dataset import Domain, DomainDataset, Indices
from fgmix.errors import UserError, bad_value
from fgmix.seeding import seed_hash


@dataclass(frozen=True)
class Split:
    """Indices of a domain's two parts, in DomainBed's order: `train` is its "in", `holdout` its "out"."""

    train: Indices
    holdout: Indices


def split_indices(n: int, holdout_fraction: float, trial_seed: int, domain_index: int) -> Split:
    """Shuffle 0…n−1 by RandomState(seed_hash(trial_seed, domain_index)); hold out the first int(n·fraction).

    >>> split_indices(5, 0.2, trial_seed=0, domain_index=0).holdout.tolist()
    [0]
    """
    keys = list(range(n))
    # a list, as in DomainBed: the shuffle of an array uses other random numbers
    np.random.RandomState(seed_hash(trial_seed, domain_index)).shuffle(keys)
    held = int(n * holdout_fraction)
    return Split(np.array(keys[held:], dtype=np.int64), np.array(keys[:held], dtype=np.int64))


def split_groups(groups: Indices, holdout_fraction: float, trial_seed: int, total: int) -> Split:
    """Hold out whole groups, so that the number of samples is near to int(n·fraction).

    All `total` groups of a dataset are shuffled by RandomState(seed_hash(trial_seed)), and each is held out if that
    brings the number nearer. Domains that share groups thus hold out nearly the same ones. Neither part is empty.

    >>> split_groups(np.array([7, 7, 8, 8, 8, 9]), 0.5, trial_seed=0, total=10).holdout.tolist()
    [2, 3, 4]
    """
    names, members, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    rank = np.random.RandomState(seed_hash(trial_seed)).permutation(total)
    n, wanted, held = len(groups), max(1, int(len(groups) * holdout_fraction)), 0
    chosen: list[int] = []
    for group in rank[names].argsort().tolist():
        more = held + int(sizes[group])
        if more < n and abs(more - wanted) < abs(held - wanted):
            chosen.append(group)
            held = more
    in_holdout = np.isin(members, chosen or [sizes.argmin()])  # the smallest, if all have too many samples
    return Split(np.flatnonzero(~in_holdout), np.flatnonzero(in_holdout))


def split_dataset(dataset: DomainDataset, holdout_fraction: float, trial_seed: int) -> dict[str, Split]:
    """Split every domain, by name: as given with the data, else by groups, else DomainBed's."""
    if not 0 < holdout_fraction < 1:
        raise bad_value("holdout_fraction", "between 0 and 1", holdout_fraction)
    splits = {}
    total = 1 + max((int(each.groups.max()) for each in dataset.domains if each.groups is not None), default=-1)
    for index, domain in enumerate(dataset.domains):
        if domain.groups is not None:
            _check_groups(domain, domain.groups)
        if domain.holdout is not None:
            split = Split(np.flatnonzero(~domain.holdout), np.flatnonzero(domain.holdout))
        elif domain.groups is not None:
            split = split_groups(domain.groups, holdout_fraction, trial_seed, total)
        else:
            split = split_indices(len(domain), holdout_fraction, trial_seed, index)
        if 0 in (len(split.train), len(split.holdout)):
            raise UserError(
                f"Expected samples of domain {domain.name!r} in both parts of a split. Found {len(split.train)} for "
                f"training and {len(split.holdout)} to hold out. Add samples, or change the split or "
                "the holdout fraction."
            )
        splits[domain.name] = split
    return splits


def _check_groups(domain: Domain, groups: Indices) -> None:
    """Raise an error for a domain of one group, and for a given split that divides a group."""
    if domain.holdout is not None and len(divided := np.intersect1d(groups[domain.holdout], groups[~domain.holdout])):
        raise UserError(
            f"Expected every group of domain {domain.name!r} in one part of the given split. Found {len(divided)} in "
            "both parts. Change the split."
        )
    if len(np.unique(groups)) == 1:
        raise UserError(
            f"Expected at least two groups in domain {domain.name!r}, one of them to hold out. Found one. Add groups, "
            "or leave them out."
        )
