"""The number of steps by the amount of data, and what fit prints before and while it trains."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from copying import replace
from deploy.made import QUICK, vectors
from fgmix import fit
from fgmix.data import DomainDataset, from_arrays
from fgmix.deploy.steps import advise, note_steps, scale_steps
from fgmix.records.schema import RunSpec
from fgmix.training.resolve import resolve

SHOWN = {**QUICK, "progress": True}


def rows(n: int, domains: int = 4) -> DomainDataset:
    return from_arrays(np.zeros((n, 1)), np.arange(n) // domains % 2, np.arange(n) % domains)


def unequal(*sizes: int) -> DomainDataset:
    """Domains of these sizes."""
    n = sum(sizes)
    return from_arrays(np.zeros((n, 1)), np.arange(n) % 2, np.repeat(np.arange(len(sizes)), sizes))


def spec(**options: Any) -> RunSpec:
    return RunSpec(**{"dataset": "arrays", "algorithm": "erm", **options})


@pytest.mark.parametrize(
    ("n", "options", "steps"),
    [
        (400, {}, None),  # the default, 1,000
        (6_400, {}, None),  # 20 · 1,600 / 32 = 1,000
        (50_000, {}, 7900),  # 7,812.5, rounded up
        (50_000, {"batch_size": 64}, 4000),
        (200_000, {}, 10_000),  # ten times the default at most
        (50_000, {"steps": 500}, 500),
        (50_000, {"protocol": "domainbed-2020"}, None),
    ],
)
def test_steps(n: int, options: dict[str, Any], steps: int | None) -> None:
    said = spec(**options)
    found = scale_steps(said, rows(n))
    assert found.steps == steps
    notes = note_steps(said, found)
    assert bool(notes) == (found.steps != said.steps)
    assert all(note.startswith(f"{steps:,} steps, scaled with the amount of data") for note in notes)


def test_the_largest_domain_is_seen_as_often_as_equal_ones() -> None:
    assert scale_steps(spec(), unequal(12_500, 100, 100)).steps == scale_steps(spec(), rows(50_000)).steps == 7900


def test_a_domain_held_out_changes_nothing() -> None:
    data = rows(50_000)
    found = scale_steps(spec(test_domains=("1",)), data)
    assert replace(found, test_domains=()) == scale_steps(spec(), data)


def test_much_longer_runs_begin_to_average_later_unless_another_start_is_given() -> None:
    assert scale_steps(spec(), rows(50_000)).averaging_start == 7900 // 2 - 1000
    assert scale_steps(spec(averaging_start=500), rows(50_000)).averaging_start == 500
    assert scale_steps(spec(), rows(12_800)).averaging_start == scale_steps(spec(), rows(400)).averaging_start == 100


def test_longer_runs_are_evaluated_less_often() -> None:
    assert scale_steps(spec(), rows(50_000)).eval_every == 395
    assert scale_steps(spec(eval_every=50), rows(50_000)).eval_every == 50


def test_what_is_left_is_announced_and_counted_by_one_bar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fgmix.deploy.steps.BUDGET", 0.2)
    model = tmp_path / "model"
    fit(vectors(), model, **SHOWN)
    first, *lines = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"fit: 4 runs of 30 steps, about \d+ s on cpu", first)
    assert all(line.startswith("fit: ") for line in lines)
    assert lines[-1].startswith("fit: 120/120 steps in ")

    (model / "model.json").unlink()
    (record,) = (model / "runs").glob("*-all-*/record.json")
    record.unlink()
    fit(vectors(), model, **SHOWN)
    said = capsys.readouterr().err
    assert said.startswith("fit: 1 of 4 runs of 30 steps, ")
    assert "fit: 120/120" in said

    (model / "model.json").unlink()
    fit(vectors(), model, **SHOWN)
    assert capsys.readouterr().err.startswith("fit: 120/120 steps in ")  # and nothing is announced


def test_without_a_gpu_images_are_offered_a_frozen_backbone() -> None:
    images = replace(vectors(), kind="images")
    spec = resolve(RunSpec(dataset="arrays", algorithm="erm"), images)
    assert "--frozen" in advise(spec, images, "cpu")[0]
    assert advise(replace(spec, frozen=True), images, "cpu") == []
    assert advise(replace(spec, pretrained=False), images, "cpu") == []  # no weights that could be frozen
    assert advise(spec, vectors(), "cpu") == []


def test_unbalanced_classes_are_named_before_hours_of_training() -> None:
    y = np.repeat([0, 0, 0, 1], 30)
    data = from_arrays(np.zeros((120, 2)), y, np.arange(120) % 3)
    spec = resolve(RunSpec(dataset="arrays", algorithm="erm"), data)
    (note,) = advise(spec, data, "cpu")
    assert "from 30 to 90 samples): consider --metric balanced_accuracy" in note
    assert advise(replace(spec, metric="macro_f1"), data, "cpu") == []


def test_domains_with_other_shares_of_a_class_are_noted() -> None:
    y = np.concatenate([np.arange(40) < 10, np.arange(40) < 30]).astype(int)  # 25 and 75 %, together balanced
    data = from_arrays(np.zeros((80, 2)), y, np.arange(80) // 40)
    (note,) = advise(resolve(RunSpec(dataset="arrays", algorithm="erm"), data), data, "cpu")
    assert "25.0 % in 1 and 75.0 % in 0" in note
