"""Shift: none between equal domains, all of it between far ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fgmix.errors import UserError
from fgmix.figures.compute.shift import SCALES, classify_domains, compare_samples, compute_shift
from fgmix.functional.kernels import mmd
from fgmix.training.open_run import OpenedRun


def normal(n: int, mean: float = 0.0, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean, 1, size=(n, 4))


def test_identical_domains_have_no_shift() -> None:
    x = normal(40)
    statistic, p = compare_samples(x, x)
    assert statistic == pytest.approx(0, abs=1e-12)
    assert p == 1
    assert classify_domains([x, x]) <= 0.5


def test_the_same_law_is_not_told_apart() -> None:
    _, p = compare_samples(normal(60, seed=1), normal(60, seed=2))
    assert p > 0.1
    assert classify_domains([normal(200, seed=1), normal(200, seed=2)]) == pytest.approx(0.5, abs=0.1)


def test_far_domains_are_told_apart() -> None:
    x, y = normal(30), normal(40, mean=5.0, seed=1)
    statistic, p = compare_samples(x, y, permutations=99)
    assert statistic > 0.5
    assert p == 1 / 100  # the least that so many permutations can give
    assert classify_domains([x, y]) == 1


def test_the_statistic_is_the_biased_mmd() -> None:
    x, y = normal(7), normal(9, mean=1.0, seed=3)
    pooled = np.concatenate([x, y])
    squared = ((pooled[:, None] - pooled[None]) ** 2).sum(-1)
    off = np.sort(squared[~np.eye(16, dtype=bool)])
    median = off[(len(off) - 1) // 2]  # torch's median: the lower of the two in the middle
    expected = mmd([torch.from_numpy(x), torch.from_numpy(y)], [scale / median for scale in SCALES])
    assert compare_samples(x, y, permutations=10)[0] == pytest.approx(float(expected))


def test_codes_that_do_not_vary_do_not_shift() -> None:
    assert compare_samples(np.ones((5, 2)), np.ones((6, 2))) == (0.0, 1.0)


def test_shift_of_a_run(erm: OpenedRun) -> None:
    found = compute_shift(erm, permutations=20, progress=False)
    assert found.domains.tolist() == ["0", "1", "2"]
    assert found.is_test.tolist() == [False, False, True]
    for matrix in (found.accuracy, found.mmd, found.p):
        assert np.array_equal(matrix, matrix.T)
    assert (np.diag(found.accuracy) == 0.5).all()
    assert (np.diag(found.mmd) == 0).all()
    assert 0 <= found.overall <= 1


def test_too_few_codes_are_said() -> None:
    with pytest.raises(UserError, match="at least 5"):
        classify_domains([normal(4), normal(9)])
