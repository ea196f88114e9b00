"""fgmix plot: what it writes, and what a mistake gives."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from copying import replace
from fgmix.cli import main
from fgmix.figures import draw
from fgmix.figures.kinds import load_arrays
from fgmix.records.status import Plan, write_plan
from fgmix.records.store import write_record
from fgmix.training.loop import train
from results.made import run
from training.killed_run import toy_spec


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Exit code of `fgmix plot arguments`."""
    monkeypatch.setattr(sys, "argv", ["fgmix", "plot", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


@pytest.fixture(autouse=True)
def _not_drawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty files instead of figures, whose drawing tests/figures tests, except for one kind."""
    monkeypatch.setattr(draw, "DPI", 30)
    if "curves" not in request.node.name:
        monkeypatch.setattr(draw, "draw", lambda *_: None)
        monkeypatch.setattr(draw, "render", lambda *_, **__: b"")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders: of finished runs that hold out "2", by algorithm; of all runs."""
    place = tmp_path_factory.mktemp("plot")
    rng = np.random.default_rng(0)
    y, domain = np.arange(90) % 3, np.arange(90) // 30
    np.savez(place / "scans.npz", X=rng.normal(size=(90, 4)) + y[:, None], y=y, domain=domain)
    settings = {"erm": {}, "fgmix": {"tau": 0.2, "n": 6, "directions": 4}}
    found = {}
    for algorithm, chosen in settings.items():
        spec = replace(toy_spec(algorithm), dataset=str(place / "scans.npz"), settings=chosen, steps=6, eval_every=3)
        for test in ("1", "2"):  # ranks need two
            spec = replace(spec, test_domains=(test,), averaging_start=2)
            folder = str(train(spec, place / "runs", device="cpu", progress=False).folder)
            found |= {algorithm: folder, f"{algorithm} {test}": folder}
    made = [
        run("1", {6: {"0": (0.5, 0.5), "1": (lam / 4, 0.5)}}, algorithm="fgmix", settings={"lam": lam, "alpha": 1.0})
        for lam in (1.0, 3.0)
    ]
    for number, record in enumerate(made):
        (place / "grid" / f"run{number}").mkdir(parents=True)
        write_record(record, place / "grid" / f"run{number}" / "record.json")
    for number in range(5):
        (place / "many" / f"run{number}").mkdir(parents=True)
        many = run("1", {6: {"0": (0.5, 0.5), "1": (number / 5, 0.5)}}, draw=number)
        write_record(many, place / "many" / f"run{number}" / "record.json")
    write_plan(place / "grid", Plan(("run0", "run1"), {"lam": (1.0, 3.0), "alpha": (1.0,)}), {})
    return {
        **found,
        **{name: str(place / name) for name in ("runs", "grid", "many")},
        "folder": str(place / "runs"),
    }


COMMANDS = {
    "weights": ["weights"],
    "curves": ["results", "fgmix", "--kind", "curves"],
    "tsne": ["tsne", "fgmix", "--samples", "8", "--mixed", "6"],
    "tsne-features": ["tsne", "fgmix", "--beside", "erm", "--samples", "8"],
    "flatness-classifier": ["flatness", "erm", "fgmix", "--directions", "2"],
    "flatness-network": ["flatness", "erm", "--scope", "network", "--directions", "2", "--samples", "5"],
    "flatness-classifier-scans-2-1-erm-fgmix-trial-0": [
        *("flatness", "erm", "fgmix", "erm 1", "fgmix 1"),
        *("--directions", "2", "--samples", "5"),
    ],
    "surface": ["surface", "erm", "fgmix", "--resolution", "2", "--samples", "5"],
    "surface-scans-1-2-erm-fgmix": [
        *("surface", "erm 1", "fgmix 1", "erm", "fgmix"),
        *("--resolution", "2", "--samples", "5"),
    ],
    "scores": ["scores", "fgmix", "--pairs", "5"],
    "cd": ["cd", "folder"],
    "differences-fgmix": ["results", "folder", "--kind", "differences", "--baseline", "FGMix"],
    "domains": ["results", "folder", "--kind", "domains"],
    "line": ["results", "many", "--kind", "line"],
    "mixing": ["results", "folder", "--kind", "mixing"],
    "budget": ["results", "folder", "--kind", "budget"],
    "sensitivity": ["results", "grid"],
    "sensitivity-paper": ["results", "--published"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_writes_its_figure(
    name: str,
    runs: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [COMMANDS[name][0], *(runs.get(word, word) for word in COMMANDS[name][1:])]
    assert call(monkeypatch, *arguments, "--out", str(tmp_path)) == 0
    lines = capsys.readouterr().out.splitlines()
    written = [Path(line) for line in lines[:4]]
    claimed = lines[4:]
    assert bool(claimed) == (name.split("-")[0] in ("flatness", "surface", "scores", "line") and "network" not in name)
    assert [line.split(" ")[0] for line in claimed] == ["Claim:", *["Test"] * (len(claimed) - 1)][: len(claimed)]
    assert [path.suffix for path in written] == [".png", ".pdf", ".svg", ".npz"]
    assert all(path.exists() and path.name.startswith(name) for path in written)
    assert len(list(tmp_path.iterdir())) == 4


def test_another_figure_of_the_same_name_is_not_replaced_silently(
    runs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for pairs, noted in (("5", False), ("5", False), ("6", True)):
        assert call(monkeypatch, "scores", runs["fgmix"], "--pairs", pairs, "--out", str(tmp_path)) == 0
        assert ("note: replaced" in capsys.readouterr().err) == noted


def test_domains_say_what_the_paper_lacks(
    runs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "results", runs["folder"], "--published", "--out", str(tmp_path)) == 0
    assert "note: the paper has no numbers for scans" in capsys.readouterr().err


def test_redraw_computes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(monkeypatch, "results", "--published", "--out", str(tmp_path)) == 0
    (file,) = tmp_path.glob("*.npz")
    before = load_arrays(file)
    for kind in ("png", "pdf", "svg"):
        file.with_suffix(f".{kind}").unlink()
    assert call(monkeypatch, "results", str(file)) == 0
    assert all(file.with_suffix(f".{kind}").exists() for kind in ("png", "pdf", "svg"))
    np.testing.assert_array_equal(load_arrays(file).value, before.value)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["tsne", "nowhere"], "nowhere"),
        (["tsne", "erm"], "erm"),
        (["scores", "erm"], "erm"),
        (["flatness", "erm", "--which", "first"], "last"),
        (["flatness", "erm", "--model", "swad"], "last_swad"),
        (["surface", "erm", "fgmix", "erm 1"], "erm"),
        (["surface", "erm"], "2"),
        (["results", "erm", "--kind", "sensitivity"], "--grid"),
        (["results", "erm", "--kind", "domain"], "'domains'"),
        (["results", "folder", "--selection", "luck"], "'luck'"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str],
    name: str,
    runs: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [runs.get(word, word) for word in arguments]
    assert call(monkeypatch, *words, "--out", str(tmp_path / "figures")) == 2
    assert name in capsys.readouterr().err
    assert not (tmp_path / "figures").exists()
