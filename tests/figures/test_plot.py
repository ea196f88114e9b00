"""Figures in Python: what `plot` returns is shown and saved."""

from __future__ import annotations

from pathlib import Path

import pytest

import fgmix
from fgmix.errors import UserError
from fgmix.figures import draw
from fgmix.figures.plot import load_plot
from fgmix.results.runs import Runs
from results.made import sweep

RECORDS = sweep({"erm": [[0.5, 0.6], [0.4, 0.6]], "coral": [[0.6, 0.7]] * 2, "m": [[0.3, 0.2]] * 2}, domains="a b")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "DPI", 30)


def test_a_plot_is_shown_and_saved(tmp_path: Path) -> None:
    plots = fgmix.plot("domains", Runs(RECORDS))
    (one,) = plots
    assert repr(one) == "<Plot domains-toy>"
    assert one._repr_svg_().startswith("<?xml")
    assert plots._repr_html_().startswith("<svg")
    assert [path.name for path in plots.save(tmp_path)] == [f"domains-toy.{each}" for each in draw.FORMATS]
    assert [path.name for path in one.save(tmp_path / "one.svg")] == ["one.svg"]
    assert len([*tmp_path.iterdir()]) == 5
    again = load_plot(tmp_path / "domains-toy.npz")
    assert (again.name, again.arrays.title) == ("domains-toy", "toy")
    assert not one.replaces_another(tmp_path / "domains-toy")
    assert fgmix.plot("domains", RECORDS[:8])[0].replaces_another(tmp_path / "domains-toy")


def test_every_kind_from_records_is_known() -> None:
    named = [each.name for each in fgmix.plot("all", RECORDS)]
    assert {"differences-erm", "domains-toy"} <= {*named}
    assert [each.name for each in fgmix.plot("differences", RECORDS, baseline="coral")] == ["differences-coral"]
    assert [each.name for each in fgmix.plot("cd", RECORDS)] == ["cd"]
    assert [each.name for each in fgmix.plot("curves", RECORDS[:1])] == [f"curves-{RECORDS[0].spec.name}"]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("domain", "Did you mean 'domains'"),
        ("tsne", "needs weights. Use plot_models"),
        ("sensitivity", "a figure of the kind sensitivity"),
    ],
)
def test_a_kind_that_cannot_be_drawn_is_an_error(kind: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        fgmix.plot(kind, RECORDS)


def test_weights_need_a_folder_and_a_known_kind() -> None:
    with pytest.raises(UserError, match="Did you mean 'surface'"):
        fgmix.plot_models("surfaces", RECORDS)
    with pytest.raises(UserError, match="Expected a run with a folder"):
        fgmix.plot_models("tsne", RECORDS[:1])
