"""Splits: every sample is in exactly one part, whatever the numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fgmix.data import from_arrays, split_dataset
from fgmix.data.splits import split_indices
from fgmix.errors import UserError
from properties.quickly import quickly

SIZES = st.integers(1, 300)
FRACTIONS = st.floats(0.01, 0.99)
SEEDS = st.integers(0, 2**31)


@quickly
@given(SIZES, FRACTIONS, SEEDS, st.integers(0, 9))
def test_a_split_is_a_partition_of_the_size_asked_for(n: int, fraction: float, seed: int, domain: int) -> None:
    split = split_indices(n, fraction, seed, domain)
    assert sorted([*split.train, *split.holdout]) == list(range(n))
    assert len(split.holdout) == int(n * fraction)


@quickly
@given(SIZES, FRACTIONS, SEEDS, st.integers(0, 9))
def test_a_split_is_a_function_of_its_arguments(n: int, fraction: float, seed: int, domain: int) -> None:
    first, second = (split_indices(n, fraction, seed, domain) for _ in range(2))
    np.testing.assert_array_equal(first.train, second.train)


@quickly
@given(SIZES, st.floats(0.01, 0.5), SEEDS)
def test_a_larger_holdout_contains_the_smaller_one(n: int, fraction: float, seed: int) -> None:
    """Hence the same trial at another fraction never trains on what it validated on."""
    small, large = (set(split_indices(n, f, seed, 0).holdout.tolist()) for f in (fraction, 2 * fraction))
    assert small <= large


@quickly
@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), FRACTIONS, SEEDS)
def test_every_domain_is_split_or_said_to_be_too_small(sizes: list[int], fraction: float, seed: int) -> None:
    domain = np.repeat(np.arange(len(sizes)), sizes)
    data = from_arrays(np.zeros((len(domain), 2)), np.arange(len(domain)) % 2, domain)
    if any(int(size * fraction) == 0 for size in sizes):
        with pytest.raises(UserError, match="to hold out"):
            split_dataset(data, fraction, seed)
        return
    splits = split_dataset(data, fraction, seed)
    assert {name: len(split.train) + len(split.holdout) for name, split in splits.items()} == {
        str(i): size for i, size in enumerate(sizes)
    }
