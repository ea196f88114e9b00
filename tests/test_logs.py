"""Following a run: each evaluation is handed on once, each point is logged once, and the record knows nothing of it."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fgmix import logs, train
from fgmix.errors import UserError
from fgmix.records.evaluations import Evaluation
from fgmix.records.schema import ResolvedSpec, RunRecord, RunSpec, to_plain
from fgmix.sweeps.execute import run_sweeps
from sweeps.toys import QUICK, Here, make_data, records, toy_sweep
from wandb_stand_in import StandIn, steps_of

STEPS = [4, 8, 12]
Reader = Callable[[Path], dict[str, list[int]]]


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    return RunSpec(dataset=make_data(tmp_path), algorithm="erm", test_domains=("us",), **QUICK)


def run(spec: RunSpec, out: Path, **how: Any) -> RunRecord:
    return train(spec, out, device="cpu", progress=False, **how)


class Interrupted(Exception):
    pass


class Steps:
    """A caller's function that notes the steps, and fails at one of them."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.found: list[int] = []
        self.fails_at = fails_at

    def __call__(self, spec: ResolvedSpec, evaluation: Evaluation) -> None:
        assert spec.algorithm == "erm"
        evaluation.accuracy.clear()  # what it does with its copy changes nothing
        self.found.append(evaluation.step)
        if evaluation.step == self.fails_at:
            raise Interrupted


def test_every_evaluation_is_handed_on_once_and_an_error_costs_nothing(spec: RunSpec, tmp_path: Path) -> None:
    run(spec, tmp_path / "plain")
    first, second = Steps(fails_at=8), Steps()
    with pytest.raises(Interrupted):
        run(spec, tmp_path / "followed", on_evaluation=first)
    assert not records(tmp_path / "followed")
    run(spec, tmp_path / "followed", on_evaluation=second)
    run(spec, tmp_path / "followed", on_evaluation=second)  # it is done: nothing new
    assert (first.found, second.found) == ([4, 8], [12])
    assert records(tmp_path / "followed") == records(tmp_path / "plain")


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    module = StandIn()
    module.__spec__ = importlib.machinery.ModuleSpec("wandb", None, origin="here")
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return module


@pytest.fixture(params=["tensorboard", "mlflow", "wandb"])
def target(request: pytest.FixtureRequest) -> tuple[str, Reader]:
    """A target with the function that reads the steps of each tag by the library's own means."""
    if request.param == "wandb":
        module = request.getfixturevalue("wandb")
        return "wandb", lambda _: steps_of([*module.runs.values()])
    pytest.importorskip(request.param)
    return request.param, {"tensorboard": read_tensorboard, "mlflow": read_mlflow}[request.param]


def read_tensorboard(out: Path) -> dict[str, list[int]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (folder,) = (out / "tensorboard").iterdir()
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {tag: [event.step for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def read_mlflow(out: Path) -> dict[str, list[int]]:
    from mlflow import MlflowClient

    client = MlflowClient((out / "mlruns").absolute().as_uri())
    experiment = client.get_experiment_by_name("fgmix")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.data.params["algorithm"] == "erm"
    return {key: [m.step for m in client.get_metric_history(found.info.run_id, key)] for key in found.data.metrics}


def test_points_are_logged_once_whatever_interrupts_the_run(
    spec: RunSpec, tmp_path: Path, target: tuple[str, Reader], capsys: pytest.CaptureFixture[str]
) -> None:
    name, read = target
    run(spec, tmp_path / "plain")
    out = tmp_path / "logged"
    with pytest.raises(Interrupted), logs.Log([name], out) as log:
        run(spec, out, on_evaluation=lambda *given: (log(*given), Steps(fails_at=4)(*given)))
    with pytest.raises(Interrupted):  # before the log hears of step 8
        run(spec, out, on_evaluation=Steps(fails_at=8))
    for _ in range(2):  # the second finds a finished run
        with logs.Log([name], out) as log:
            log.complete(run(spec, out, on_evaluation=log))
    found = read(out)
    assert {"train/loss", "raw/accuracy/us/train", "swa/loss/ct/holdout"} <= found.keys()
    assert all(steps == STEPS for steps in found.values()), found
    assert records(out) == records(tmp_path / "plain")
    assert "failed" not in capsys.readouterr().err


def test_values_and_what_a_run_is_reach_the_target(spec: RunSpec, tmp_path: Path, wandb: StandIn) -> None:
    run_sweeps([toy_sweep(spec.dataset, "erm", test_domains=("us",))], tmp_path, Here(), progress=False, log=["wandb"])
    ((identity, logged),) = wandb.runs.items()
    (folder,) = tmp_path.glob("scans-*")
    assert (logged.how["name"], logged.how["project"], logged.finished) == (folder.name, "fgmix", True)
    assert folder.name.endswith(identity)
    assert logged.how["config"]["algorithm"] == "erm"
    from fgmix import read_record

    last = read_record(folder).evaluations[-1]
    step, points = logged.history[-1]
    assert step == last.step
    assert points["raw/accuracy/us/train"] == last.accuracy["raw"]["us"]["train"]
    assert points["train/loss"] == last.metrics["loss"]


def test_the_metric_that_a_run_selects_by_is_logged_beside_accuracy(spec: RunSpec, tmp_path: Path) -> None:
    record = run(RunSpec(**{**to_plain(spec), "metric": "macro_f1"}), tmp_path)
    tags = logs.flatten(record.spec, record.evaluations[0])
    assert {"raw/accuracy/us/holdout", "raw/macro_f1/us/holdout", "raw/loss/us/holdout"} <= tags.keys()


def test_a_log_that_fails_does_not_stop_the_run(
    spec: RunSpec, tmp_path: Path, wandb: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_network(**_: Any) -> None:
        raise ConnectionError("no route\nto the host")

    wandb.init = no_network  # type: ignore[assignment,method-assign]
    with logs.Log(["wandb"], tmp_path) as log:
        log.complete(run(spec, tmp_path, on_evaluation=log))
    expected = "note: --log wandb failed (ConnectionError: no route). The run continues without it.\n"
    assert capsys.readouterr().err == expected


def test_a_target_that_is_unknown_or_missing_is_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="Did you mean 'tensorboard'"):
        logs.check_names(["tensorbord"])
    monkeypatch.setattr("fgmix.errors.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"Run `pip install 'fgmix\[wandb\]'`"):
        logs.check_names(["wandb"])
