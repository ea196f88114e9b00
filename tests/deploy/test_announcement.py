"""What fit prints before and while it trains."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from copying import replace
from deploy.made import QUICK, vectors
from fgmix import fit
from fgmix.data import from_arrays
from fgmix.deploy.schedule import advise
from fgmix.records.schema import RunSpec
from fgmix.training.resolve import resolve

SHOWN = {**QUICK, "progress": True}


def test_what_is_left_is_announced_and_counted_by_one_bar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fgmix.deploy.schedule.BUDGET", 0.2)
    model = tmp_path / "model"
    fit(vectors(), model, **SHOWN)
    first, *lines = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"fit: 4 runs of 30 steps, about \d+ s on cpu", first)
    assert all(line.startswith("fit: ") for line in lines)
    assert sum("evaluating after step" in line for line in lines) == 4 * 3
    assert any(line.startswith("fit: 120/120") for line in lines)
    assert lines[-1] == "fit: predicting the domains that were held out"

    (model / "model.json").unlink()
    (record,) = (model / "runs").glob("*-all-*/record.json")
    record.unlink()
    fit(vectors(), model, **SHOWN)
    said = capsys.readouterr().err
    assert said.startswith("fit: 1 of 4 runs of 30 steps, ")
    assert "fit: 120/120" in said

    (model / "model.json").unlink()
    fit(vectors(), model, **SHOWN)
    assert capsys.readouterr().err == "fit: predicting the domains that were held out\n"


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
