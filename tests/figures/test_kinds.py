"""Every kind: described, saved, described again, and encoded for the page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fgmix.figures
from fgmix.errors import UserError
from fgmix.figures.description import encode
from fgmix.figures.differences import Ranks
from fgmix.figures.kinds import KINDS, describe, load_arrays, save_arrays, state_claims
from fgmix.figures.tables import Domains
from figures import made


def test_every_kind_has_an_example_and_its_own_name() -> None:
    assert made.every().keys() == KINDS.keys()
    assert all(name == kind.arrays.__name__ for name, kind in KINDS.items())


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_figure_has_the_same_description(kind: str, tmp_path: Path) -> None:
    arrays = made.every()[kind]
    save_arrays(tmp_path / "figure.npz", arrays)
    chart = describe(arrays, "x", "fgmix plot it")
    assert all(panel.marks for panel in chart.panels)
    text = json.dumps(encode(chart), allow_nan=False)
    assert json.loads(text)["command"] == "fgmix plot it"
    assert json.dumps(encode(describe(load_arrays(tmp_path / "figure.npz"), "x", "fgmix plot it"))) == text


@pytest.mark.parametrize("kind", made.rows())
def test_rows_stand_below_each_other(kind: str, tmp_path: Path) -> None:
    arrays = made.rows()[kind]
    save_arrays(tmp_path / "figure.npz", arrays)
    alone, both = describe(arrays[0]), describe(load_arrays(tmp_path / "figure.npz"))
    assert len(both.panels) == 2 * len(alone.panels)
    assert both.columns == len(alone.panels)
    assert all(panel.title.startswith("sketch: ") for panel in both.panels)


def test_figures_saved_by_earlier_versions_are_read() -> None:
    folder = Path(__file__).parents[2] / "docs" / "records" / "pacs-figures"
    for name in ("curves-sketch-2", "flatness-0", "scores-sketch-0", "surface-sketch-0"):
        assert describe(load_arrays(folder / f"{name}.npz")).panels


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
    table = Domains("t", "Method", *names, np.ones((1, 1)), np.full((1, 1), np.nan))
    save_arrays(tmp_path / "a.npz", table)
    found = load_arrays(tmp_path / "a.npz")
    assert type(found) is Domains
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


def test_a_claim_is_stated_once_and_decided_for_each_row() -> None:
    assert len(state_claims([made.flatness(), made.flatness()])) == 3
    assert state_claims(made.embedding()) == []


def test_only_compute_imports_torch_and_only_draw_matplotlib() -> None:
    room = Path(fgmix.figures.__file__).parent
    names = [f"fgmix.figures.{path.stem}" for path in room.glob("*.py") if path.stem not in ("__init__", "draw")]
    code = (
        f"import sys, {', '.join(names)}; print({{'torch', 'matplotlib'}} & set(sys.modules)); "
        "import fgmix.figures.draw; print({'torch', 'matplotlib.pyplot'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["set()", "set()"]
