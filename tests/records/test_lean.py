"""Records as tables need them: equal to the whole ones (see tests/properties), and read without their losses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fgmix.errors import UserError
from fgmix.records import lean
from fgmix.records.files import read_json, write_json
from fgmix.records.schema import RECORD, RunRecord, read_record
from fgmix.results.collect import collect
from results.made import finished, random_sweep


@pytest.fixture
def sweep(tmp_path: Path) -> list[RunRecord]:
    """Records in their folders, with losses and metrics."""
    written = []
    for number, record in enumerate(random_sweep(1, 2, 1, 1)):
        (tmp_path / f"run{number}").mkdir()
        file = tmp_path / f"run{number}" / RECORD
        record.write(file)
        content = read_json(file)
        for evaluation in content["evaluations"]:
            evaluation.update(loss={"raw": {"d0": {"holdout": 0.25}}}, metrics={"λ": 0.5, "penalty": -1.5})
        write_json(file, content)
        written.append(read_record(file))
    return written


def test_tables_are_made_without_reading_whole_records(
    sweep: list[RunRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lean, "read_record", None)  # what is read whole fails
    found = collect(tmp_path).records
    assert [record.test_accuracy("swa") for record in found] == [record.test_accuracy("swa") for record in sweep]


def test_losses_and_metrics_are_read_when_they_are_looked_at(sweep: list[RunRecord], tmp_path: Path) -> None:
    for found, whole in zip(collect(tmp_path).records, sweep):
        assert found.evaluations[-1].loss == {"raw": {"d0": {"holdout": 0.25}}}
        assert json.dumps(found.as_dict(), sort_keys=True) == json.dumps(whole.as_dict(), sort_keys=True)


def test_metrics_that_are_no_numbers_are_kept(sweep: list[RunRecord]) -> None:
    """No JSON text by the standard, and read the slow way."""
    assert sweep[0].folder is not None
    content = read_json(sweep[0].folder / RECORD)
    content["evaluations"][0]["metrics"]["λ"] = float("nan")
    write_json(sweep[0].folder / RECORD, content)
    found = lean.read_lean_record(sweep[0].folder / RECORD)
    assert found.evaluations[0].metrics["λ"] != found.evaluations[0].metrics["λ"]
    assert found.test_accuracy("swa") == sweep[0].test_accuracy("swa")


@pytest.mark.parametrize("loss", [-0.5, float("inf"), "low", None])
def test_a_loss_that_no_run_has_is_refused_when_it_is_looked_at(sweep: list[RunRecord], loss: object) -> None:
    assert sweep[0].folder is not None
    content = read_json(sweep[0].folder / RECORD)
    content["evaluations"][2]["loss"]["raw"]["d0"]["holdout"] = loss
    write_json(sweep[0].folder / RECORD, content)
    with pytest.raises(UserError, match=r"loss on d0|not whole"):
        lean.read_lean_record(sweep[0].folder / RECORD).as_dict()


@pytest.mark.parametrize("name", ['x": 0.5', "a\\", "loss", "0.5", 'q": {"', "é"])
def test_a_domain_may_have_any_name(name: str, tmp_path: Path) -> None:
    """Those that look like parts of the text are read the slow way."""
    text = json.dumps(finished("a", 0.75).as_dict()).replace('"a"', json.dumps(name))
    write_json(tmp_path / RECORD, json.loads(text))
    found = lean.read_lean_record(tmp_path / RECORD)
    assert found.test_accuracy() == 0.75
    assert found.evaluations[0].accuracy["raw"][name] == {"holdout": 0.75, "train": 0.75}
