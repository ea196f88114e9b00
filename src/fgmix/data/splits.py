"""DomainBed's split of a domain into training part and holdout part, with the same indices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fgmix.data.dataset import DomainDataset, Indices
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


def split_dataset(dataset: DomainDataset, holdout_fraction: float, trial_seed: int) -> dict[str, Split]:
    """Split every domain, by name: as given with the data, else DomainBed's."""
    if not 0 < holdout_fraction < 1:
        raise bad_value("holdout_fraction", "between 0 and 1", holdout_fraction)
    splits = {}
    for index, domain in enumerate(dataset.domains):
        if domain.holdout is None:
            split = split_indices(len(domain), holdout_fraction, trial_seed, index)
        else:
            split = Split(np.flatnonzero(~domain.holdout), np.flatnonzero(domain.holdout))
        if 0 in (len(split.train), len(split.holdout)):
            raise UserError(
                f"Expected samples of domain {domain.name!r} in both parts of a split. Found {len(split.train)} for "
                f"training and {len(split.holdout)} to hold out. Add samples, or change the split or "
                "the holdout fraction."
            )
        splits[domain.name] = split
    return splits
