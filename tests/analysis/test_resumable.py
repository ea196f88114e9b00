"""Rows that are kept as they come."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fgmix.analysis.resumable import compute_rows, partial_file, remove_partial


class Dying:
    """A row is its number, squared; the `dies_at`-th is never computed."""

    def __init__(self, dies_at: int = 99) -> None:
        self.dies_at, self.computed = dies_at, list[int]()

    def __call__(self, i: int) -> np.ndarray:
        if i == self.dies_at:
            raise KeyboardInterrupt
        self.computed.append(i)
        return np.array([i, i * i], dtype=float)


def rows(compute: Dying, partial: Path, key: object = "k") -> np.ndarray:
    return compute_rows(compute, 5, description="", key=key, partial=partial, progress=False)


def test_killed_rows_go_on(tmp_path: Path) -> None:
    partial = partial_file(tmp_path / "surface")
    with pytest.raises(KeyboardInterrupt):
        rows(Dying(3), partial)
    rest = Dying()
    assert rows(rest, partial)[:, 1].tolist() == [0, 1, 4, 9, 16]
    assert rest.computed == [3, 4]
    other = partial_file(tmp_path / "surface-2")
    rows(Dying(), other)
    remove_partial(tmp_path / "surface")
    assert list(tmp_path.iterdir()) == [other]


def test_rows_of_another_computation_are_not_used(tmp_path: Path) -> None:
    partial = partial_file(tmp_path / "surface")
    rows(Dying(), partial)
    again = Dying()
    rows(again, partial, key="other")
    assert again.computed == [0, 1, 2, 3, 4]
