"""Arrays of figures and their files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fgmix.errors import UserError
from fgmix.figures.ablation import Ablation
from fgmix.figures.arrays_file import load_arrays, save_arrays
from fgmix.figures.cd import Ranks


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    labels, keys = np.array(["ERM", "FGMix + SWA"]), np.array(["erm", "fgmix"])
    ranks = Ranks(labels, keys, np.array([1.25, 1.75]), np.array([[0, 1]]), 0.7, 12, 0.03)
    save_arrays(tmp_path / "cd.npz", ranks)
    found = load_arrays(tmp_path / "cd.npz")
    assert type(found) is Ranks
    assert found.methods.tolist() == ["ERM", "FGMix + SWA"]
    assert found.algorithms.tolist() == ["erm", "fgmix"]
    assert found.ranks.tolist() == [1.25, 1.75]
    assert found.cliques.tolist() == [[0, 1]]
    assert (found.critical_difference, found.pairs, found.p) == (0.7, 12, 0.03)


def test_kinds_with_the_same_fields_stay_apart(tmp_path: Path) -> None:
    names = (np.array(["a"]), np.array(["a"]), np.array([True]), np.array(["b"]))
    table = Ablation("t", "Method", *names, np.ones((1, 1)), np.full((1, 1), np.nan))
    save_arrays(tmp_path / "a.npz", table)
    found = load_arrays(tmp_path / "a.npz")
    assert type(found) is Ablation
    assert np.isnan(found.spread).all()


def test_other_files_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    with pytest.raises(UserError, match="Found another"):
        load_arrays(tmp_path / "other.npz")
    np.savez(tmp_path / "pickled.npz", kind=np.array({"a": 1}, dtype=object))
    with pytest.raises(UserError, match="another kind, or a damaged one"):
        load_arrays(tmp_path / "pickled.npz")
    with pytest.raises(UserError, match="Found none"):
        load_arrays(tmp_path / "missing.npz")
