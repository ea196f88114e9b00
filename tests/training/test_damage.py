"""Any byte of any file of a run may change or be lost: that is harmless, or it is found before it is used."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fgmix.errors import UserError
from fgmix.records.schema import RunRecord, RunSpec, to_plain
from fgmix.records.store import RunFolder, read_record
from fgmix.training.loop import train
from fgmix.training.state import check_weights, read_checkpoint, read_weights, write_tensors
from fgmix.training.trunk import FOLDER
from training.killed_run import toy_data, toy_spec
from training.test_resume import run_killed

SPEC: RunSpec = toy_spec()
TRUNK = 17  # first steps of `SPEC` that are ERM's


def finish(out: Path) -> RunRecord:
    return train(SPEC, out, dataset=toy_data(), device="cpu", progress=False)


def the_run(out: Path) -> Path:
    (folder,) = out.iterdir()
    return folder


def change(data: bytes, rng: random.Random, cut: bool) -> bytes:
    """Lose the end, or change one byte."""
    where = rng.randrange(len(data))
    return data[:where] if cut else data[:where] + bytes([data[where] ^ rng.randrange(1, 256)]) + data[where + 1 :]


def damage_a_file(out: Path, case: int) -> Path:
    """Cut or change a file: case by case each of the files, in the two ways."""
    files = [path for path in sorted(out.rglob("*")) if path.is_file() and path.stat().st_size]
    path = files[case // 2 % len(files)]
    path.write_bytes(change(path.read_bytes(), random.Random(case), cut=case % 2 == 0))
    return path


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    return finish(tmp_path_factory.mktemp("done"))


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed after its second evaluation, with two checkpoints."""
    out = tmp_path_factory.mktemp("unfinished")
    run_killed(out, "step", 23)
    assert all(path.exists() for path in RunFolder(the_run(out)).checkpoints)
    return out


def test_1000_changes_of_a_finished_runs_files_are_found_or_harmless(done: RunRecord, tmp_path: Path) -> None:
    assert done.folder is not None
    rng = random.Random(0)
    files = [path for path in sorted(done.folder.rglob("*")) if path.suffix in (".pt", ".json", ".jsonl")]
    read = {
        ".pt": check_weights,
        ".json": read_record,
        ".jsonl": lambda p: RunFolder(p.parent).evaluations(),
    }
    files = [path for path in files if path.name not in ("sessions.jsonl", "spec.json")]  # never part of a result
    assert len(files) >= 8
    contents = {path: path.read_bytes() for path in files}
    for _ in range(1000):
        path = rng.choice(files)
        copy = tmp_path / path.name
        copy.write_bytes(change(contents[path], rng, cut=rng.random() < 0.3))
        if path.name == "metrics.jsonl" and contents[path].startswith(copy.read_bytes()):
            continue  # whole lines lost at the end: the checkpoint knows the length, see below
        with pytest.raises(UserError, match=path.name):
            read[path.suffix](copy)


@pytest.mark.parametrize("case", range(30))
def test_a_damaged_unfinished_run_ends_as_if_it_were_whole_or_says_so(
    case: int, unfinished: Path, done: RunRecord, tmp_path: Path
) -> None:
    out = shutil.copytree(unfinished, tmp_path / "runs")
    path = damage_a_file(out, case)
    try:
        again = finish(out)
    except UserError as error:
        assert path.name in str(error)  # noqa: PT017 (raising is one of two right answers)
        return
    assert to_plain(again) == to_plain(done)
    assert again.folder is not None
    assert done.folder is not None
    names = sorted(path.relative_to(done.folder) for path in done.folder.rglob("*.pt"))
    assert len(names) == 4 + 2 * 4  # with the snapshots of both models
    for name in names:
        ours, theirs = (read_weights(folder / name) for folder in (again.folder, done.folder))
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


@pytest.mark.parametrize(("step", "first"), [(20, 16), (0, 0)])  # after the checkpoint before, or in its past
def test_a_lost_snapshot_is_made_again(
    step: int, first: int, unfinished: Path, done: RunRecord, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(unfinished, tmp_path / "runs")
    (lost := RunFolder(the_run(out)).snapshot(step)).unlink()
    assert to_plain(finish(out)) == to_plain(done)
    assert str(lost) in capsys.readouterr().err
    assert done.folder is not None
    assert lost.read_bytes() == RunFolder(done.folder).snapshot(step).read_bytes()
    assert f'"first_step": {first}' in (the_run(out) / "sessions.jsonl").read_text().splitlines()[-1]


def test_the_checkpoint_before_a_damaged_one_is_resumed_from(
    unfinished: Path, done: RunRecord, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    shutil.copytree(unfinished, out)
    newest, before = RunFolder(the_run(out)).checkpoints
    before_step = read_checkpoint(before, "cpu")["progress"]["step"]
    newest.write_bytes(b"not a checkpoint")
    assert to_plain(finish(out)) == to_plain(done)
    assert "checkpoint.pt" in capsys.readouterr().err
    assert f'"first_step": {before_step}' in (the_run(out) / "sessions.jsonl").read_text().splitlines()[-1]


@pytest.mark.parametrize(
    "forge",
    [
        lambda state: state["progress"].update(step=10**6),
        lambda state: state["progress"].update(metrics_length="x"),
        lambda state: state["progress"].update(counted={"loss": None}),
        lambda state: state["progress"].update(best={"raw": "x"}),
        lambda state: state["progress"].update(sums={"loss": 1}),
        lambda state: state["progress"].update(unseen={"raw": 3}),
        lambda state: state.pop("progress"),
        lambda state: state.update(average=Path("code that would run")),
    ],
)
def test_a_checkpoint_that_no_run_wrote_is_not_resumed_from_although_it_is_sealed(
    forge: Callable[[dict[str, Any]], object],
    unfinished: Path,
    done: RunRecord,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = shutil.copytree(unfinished, tmp_path / "runs")
    newest, _ = RunFolder(the_run(out)).checkpoints
    state = read_checkpoint(newest, "cpu")
    forge(state)
    write_tensors(newest, state)
    assert to_plain(finish(out)) == to_plain(done)
    assert "checkpoint.pt. Found other bytes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "forge",
    [
        lambda moments, _: moments.pop("exp_avg"),
        lambda moments, _: moments.update(exp_avg_sq="x"),
        lambda moments, _: moments.update(exp_avg=torch.zeros(1, 2, 3)),
        lambda _, state: state["algorithm"]["_extra_state"].update(updates={}),
        lambda _, state: state["average"].update(count=None),
    ],
)
def test_a_checkpoint_whose_optimiser_or_average_does_not_fit_is_an_error(
    forge: Callable[[dict[str, Any], dict[str, Any]], object], unfinished: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(unfinished, tmp_path / "runs")
    newest, _ = RunFolder(the_run(out)).checkpoints
    state = read_checkpoint(newest, "cpu")
    forge(state["algorithm"]["_extra_state"]["optimizers"]["optimizer"]["state"][0], state)
    write_tensors(newest, state)
    with pytest.raises(UserError, match="ValueError"):
        finish(out)


def test_weights_that_are_gone_are_made_again(
    unfinished: Path, done: RunRecord, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(unfinished, tmp_path / "runs")
    (the_run(out) / "best.pt").unlink()
    assert to_plain(finish(out)) == to_plain(done)
    assert "best.pt. Found none. The run resumes from what is whole" in capsys.readouterr().err
    assert (the_run(out) / "best.pt").exists()


def test_a_pipe_among_the_notes_does_not_make_a_run_wait(unfinished: Path, done: RunRecord, tmp_path: Path) -> None:
    out = shutil.copytree(unfinished, tmp_path / "runs")
    RunFolder(the_run(out)).sessions.unlink(missing_ok=True)
    os.mkfifo(RunFolder(the_run(out)).sessions)
    assert to_plain(finish(out)) == to_plain(done)


def test_a_damaged_record_is_not_read(done: RunRecord, tmp_path: Path) -> None:
    assert done.folder is not None
    text = (done.folder / "record.json").read_text()
    (tmp_path / "record.json").write_text(text.replace('"step": 30', '"step": 31'))
    with pytest.raises(UserError, match=r"record\.json.*damaged"):
        read_record(tmp_path)


@pytest.fixture(scope="module")
def trunk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a sweep leaves when one run that shares its first steps is done: the trunk alone."""
    out = tmp_path_factory.mktemp("trunk")
    train(toy_spec("fgmix_b"), out, dataset=toy_data(), device="cpu", progress=False, trunk=TRUNK)
    for path in out.iterdir():
        if path.name != FOLDER:
            shutil.rmtree(path)
    return out


@pytest.mark.parametrize("case", range(24))
def test_a_damaged_trunk_is_trained_again_or_named(case: int, trunk: Path, done: RunRecord, tmp_path: Path) -> None:
    out = shutil.copytree(trunk, tmp_path / "runs")
    path = damage_a_file(out, case)
    try:
        again = train(SPEC, out, dataset=toy_data(), device="cpu", progress=False, trunk=TRUNK)
    except UserError as error:
        assert path.name in str(error)  # noqa: PT017 (raising is one of two right answers)
        return
    assert to_plain(again) == to_plain(done)
