"""The cost of one run: arithmetic on a calibration, and the sizes of the files it predicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from copying import replace
from fgmix.data import load
from fgmix.records.schema import RunSpec
from fgmix.sweeps.calibrate import Calibration, RunCost, calibrate, count_checkpoint_bytes, estimate_cost
from sweeps.toys import make_data


@pytest.fixture
def data(tmp_path: Path) -> str:
    return make_data(tmp_path)


def spec(data: str, **fields: object) -> RunSpec:
    return RunSpec(dataset=data, algorithm="erm", test_domains=("us",), **fields)  # type: ignore[arg-type]


CALIBRATION = Calibration(
    step_seconds={0.5: 2.0},
    batch_size=10,
    read_seconds=0.25,
    score_seconds=0.5,
    weights_bytes=1000,
    model_bytes=100,
    state_bytes=5000,
)


def test_an_estimate_by_hand(data: str) -> None:
    """Three domains of 30: 6 held out of each of two sources, all 30 of the test domain, in 3 evaluations."""
    run = spec(data, steps=10, eval_every=4, batch_size=20, averaging="none")
    found = estimate_cost(run, load(data), CALIBRATION)
    assert found == RunCost(1, 10 * 2.0 * 20 / 10 + 3 * (6 + 6 + 30) * (0.25 + 0.5), 2 * 1000, steps=10)


def test_steps_after_shared_ones_cost_what_they_cost(data: str) -> None:
    """FGMix trains its first steps as ERM does; what is left to it after a trunk are the dear ones."""
    run = spec(data, steps=10, eval_every=10, batch_size=10, averaging="none")
    phases = replace(CALIBRATION, step_seconds={0.5: 5.0, 0.1: 2.0, 0.9: 5.0}, read_seconds=0.0, score_seconds=0.0)
    assert [estimate_cost(run, load(data), phases, start).seconds for start in (0, 2, 10)] == [10 * 4.0, 8 * 5.0, 0.0]


@pytest.mark.parametrize(
    ("fields", "read", "scored", "size"),
    [
        ({"averaging": "swa"}, 42, 2 * 42, 4 * 1000),  # two models in one pass, best and last of each
        ({"averaging": "swad"}, 2 * 42, 2 * 42, 4 * 1000),  # in a pass for each
        ({"averaging": "none", "evaluate_train": True}, 90, 90, 2 * 1000),
        ({"averaging": "none", "snapshots": 5}, 42, 42, 2 * 1000 + 6 * 100),  # the initial weights are a snapshot, too
        ({"averaging": "swa", "snapshots": 5}, 42, 2 * 42, 2 * (2 * 1000 + 6 * 100)),
    ],
)
def test_averages_training_parts_and_snapshots_count(
    data: str, fields: dict[str, object], read: int, scored: int, size: int
) -> None:
    found = estimate_cost(spec(data, steps=1, batch_size=10, averaging_start=0, **fields), load(data), CALIBRATION)
    assert found.seconds == 2.0 + read * 0.25 + scored * 0.5
    assert found.bytes == size


def test_a_checkpoint_by_hand(data: str) -> None:
    """The old one is there until the new one is written."""
    sizes = {name: count_checkpoint_bytes(spec(data, averaging=name), CALIBRATION) for name in ("none", "swa", "swad")}
    assert sizes == {"none": 2 * 5000, "swa": 2 * 5100, "swad": 2 * 5800}


def test_sizes_are_those_of_the_files(data: str, tmp_path: Path) -> None:
    """Files hold the tensors and a few kilobytes more; FGMix's hold its policy, too."""
    from fgmix.training.prepare import build_algorithm, build_average, build_source, prepare
    from fgmix.training.state import TrainingState, save_checkpoint, save_weights

    run = prepare(
        replace(spec(data, steps=4, averaging_start=1), algorithm="fgmix", settings={"tau": 0.0}), progress=False
    )
    found = calibrate(run.spec, run.dataset, device="cpu", repeats=1)
    algorithm = build_algorithm(run)
    algorithm.step(build_source(run).at(0))
    average = build_average(run.spec, algorithm)
    save_checkpoint((tmp_path / "checkpoint.pt", tmp_path / "before.pt"), algorithm, average, TrainingState())()
    save_weights(tmp_path / "best.pt", algorithm)
    sizes = {file: (tmp_path / file).stat().st_size for file in ("checkpoint.pt", "best.pt")}
    assert found.weights_bytes == pytest.approx(sizes["best.pt"], rel=0.05)
    assert count_checkpoint_bytes(run.spec, found) / 2 == pytest.approx(sizes["checkpoint.pt"], rel=0.05)
    assert found.model_bytes < found.weights_bytes < found.state_bytes
