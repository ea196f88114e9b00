"""Asked to stop, a run writes a checkpoint and ends; resumed, it ends as if it had never been asked."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from copying import replace
from fgmix import cli
from fgmix.records.schema import RunRecord, RunSpec
from fgmix.training import evaluate, loop
from fgmix.training.loop import train
from fgmix.training.signals import Stop, Stopped, stop_on_signal
from fgmix.training.state import TrainingState, read_checkpoint, save_checkpoint
from fgmix.training.trunk import count_trunk_steps
from training.killed_run import toy_data, toy_spec
from training.test_resume import assert_same_files


def run(spec: RunSpec, out: Path, trunk: int = 0) -> RunRecord:
    return train(spec, out, dataset=toy_data(), device="cpu", progress=False, trunk=trunk)


def folder_of(record: RunRecord) -> Path:
    assert record.folder is not None
    return record.folder


def at_call(count: int, function: Callable[..., Any], number: int = signal.SIGTERM) -> Callable[..., Any]:
    """The function, which asks this process to stop when it is called for the `count`-th time."""
    calls = iter(range(1, 10_000))

    def asking(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == count:
            os.kill(os.getpid(), number)
        return function(*args, **kwargs)

    return asking


@pytest.fixture
def patched() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of runs that nobody stopped, by their average."""
    out = tmp_path_factory.mktemp("whole")
    return {kind: folder_of(run(spec_with(kind), out)) for kind in ("swa", "swad", "none")}


def spec_with(averaging: str) -> RunSpec:
    return replace(toy_spec(), averaging=averaging, checkpoint_every=0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("averaging", "where", "count", "step"),
    [
        ("swa", "step", 1, 1),
        ("swa", "step", 10, 10),
        ("swa", "step", 13, 13),
        ("swa", "step", 30, 30),
        ("swa", "evaluation", 2, 20),
        ("swad", "step", 13, 13),
        ("swad", "step", 30, 30),
        ("swad", "evaluation", 3, 20),  # in the first of its two passes
        ("none", "step", 13, 13),
    ],
)
def test_a_stopped_run_resumes_to_the_same_files(
    whole: dict[str, Path],
    tmp_path: Path,
    patched: pytest.MonkeyPatch,
    averaging: str,
    where: str,
    count: int,
    step: int,
) -> None:
    spec = spec_with(averaging)
    if where == "step":
        patched.setattr(loop._Loop, "_step", at_call(count, loop._Loop._step))
    else:
        patched.setattr(evaluate, "score_subsets", at_call(count, evaluate.score_subsets))
    with pytest.raises(Stopped, match=rf"SIGTERM .* {step} of 30"):
        run(spec, tmp_path)
    patched.undo()
    (folder,) = tmp_path.iterdir()
    assert read_checkpoint(folder / "checkpoint.pt", "cpu")["progress"]["step"] == step
    assert_same_files(whole[averaging], folder_of(run(spec, tmp_path)))


def test_swads_second_pass_is_finished(whole: dict[str, Path], tmp_path: Path, patched: pytest.MonkeyPatch) -> None:
    """Its average has taken in the first pass's losses: a checkpoint without the evaluation would count them twice."""
    spec = spec_with("swad")
    patched.setattr(evaluate, "score_subsets", at_call(2, evaluate.score_subsets))
    with pytest.raises(Stopped, match="after step 11 of 30"):
        run(spec, tmp_path)
    patched.undo()
    assert_same_files(whole["swad"], folder_of(run(spec, tmp_path)))


@pytest.mark.parametrize(("count", "where"), [(4, "trunks/arrays-erm"), (20, "arrays-fgmix")])
def test_a_stop_in_a_shared_trunk_and_after_it(
    tmp_path: Path, patched: pytest.MonkeyPatch, count: int, where: str
) -> None:
    settings = {"tau": 0.4, "n": 8, "directions": 5}
    spec = replace(toy_spec("fgmix"), settings=settings, eval_every=4, dropout=0.0)
    whole = run(spec, tmp_path / "whole")
    first = count_trunk_steps(whole.spec)
    assert 4 < first < 20
    patched.setattr(loop._Loop, "_step", at_call(count, loop._Loop._step))
    with pytest.raises(Stopped, match=where):
        run(spec, tmp_path / "stopped", first)
    patched.undo()
    assert_same_files(folder_of(whole), folder_of(run(spec, tmp_path / "stopped", first)))


def test_checkpoints_by_time_change_nothing_but_what_a_kill_loses(tmp_path: Path, patched: pytest.MonkeyPatch) -> None:
    """A clock that shows two more seconds at every look: about one look per step, hence a checkpoint every 30 steps
    where one is due every minute."""
    spec = replace(toy_spec(), checkpoint_every=0, eval_every=1000, steps=100, checkpoint_minutes=1.0)
    saved: list[int] = []

    def save(paths: Any, algorithm: Any, average: Any, progress: TrainingState) -> Any:
        saved.append(progress.step)
        return save_checkpoint(paths, algorithm, average, progress)

    patched.setattr(loop, "save_checkpoint", save)
    times = iter(range(0, 10_000, 2))
    patched.setattr(loop, "monotonic", lambda: next(times))
    by_time = run(spec, tmp_path / "time")
    assert saved == [30, 60, 90, 100]
    saved.clear()
    never = run(replace(spec, checkpoint_minutes=0.0), tmp_path / "never")
    assert saved == [100]
    assert by_time.evaluations == never.evaluations
    assert by_time.spec.name == never.spec.name, "how often a run saves is no part of its identity"


def test_the_command_line_says_so_and_exits_with_its_own_code(
    tmp_path: Path, patched: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    patched.setattr(loop._Loop, "_step", at_call(2, loop._Loop._step, signal.SIGUSR1))
    words = "train --dataset digits --algorithm erm --test-domain photo --steps 3 --quiet --device cpu --out"
    patched.setattr(sys, "argv", ["fgmix", *words.split(), str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == cli.STOPPED == 75
    assert "fgmix: Stopped by SIGUSR1 after step 2 of 3" in capsys.readouterr().err


def test_signals_that_the_program_handles_are_left_to_it() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        with stop_on_signal() as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            assert (seen, stop.reason) == ([signal.SIGTERM], None)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_handlers_are_gone_afterwards_and_other_threads_have_none() -> None:
    with stop_on_signal():
        assert signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    found: list[object] = []

    def listen() -> None:
        with stop_on_signal():
            found.append(signal.getsignal(signal.SIGUSR1))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert found == [signal.SIG_DFL]


def test_a_request_ends_a_block_that_may_be_given_up() -> None:
    stop = Stop()
    with pytest.raises(Stopped), stop.at_once():
        stop.request("test")
    with pytest.raises(Stopped), stop.at_once():
        pytest.fail("it was asked before")
