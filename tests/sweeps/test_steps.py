"""Where the runs of a sweep are: written by workers, read by the sweep and by `fgmix status`."""

from __future__ import annotations

import os
from pathlib import Path

from fgmix.progress import Progress
from fgmix.records.schema import RunSpec
from fgmix.records.status import STALE_SECONDS, Plan, read_steps, step_file, write_plan
from fgmix.sweeps.design import PlannedRun
from fgmix.sweeps.execute import StepFile, show_steps

RUN = PlannedRun("digits-erm-photo-0", RunSpec(dataset="digits", algorithm="erm", test_domains="photo"))


def test_a_worker_writes_its_step_and_removes_the_file(tmp_path: Path) -> None:
    with StepFile(RUN, tmp_path) as worker:
        with Progress("erm photo", 300, "steps", done=120, show=worker):  # resumed after 120 steps
            (current,) = read_steps(tmp_path)
        assert (current.run, current.title, current.step, current.steps) == (RUN.name, "erm photo", 120, 300)
    assert read_steps(tmp_path) == []


def test_dead_workers_and_half_written_files_are_left_out(tmp_path: Path) -> None:
    file = step_file(tmp_path)
    file.parent.mkdir()
    file.write_bytes(b'{"run": "a"')
    assert read_steps(tmp_path) == []
    with StepFile(RUN, tmp_path) as worker:
        worker.refresh()
        old = file.stat().st_mtime - STALE_SECONDS
        os.utime(file, (old, old))
        assert read_steps(tmp_path) == []


def test_the_sweep_counts_parts_of_runs(tmp_path: Path) -> None:
    write_plan(tmp_path, Plan((RUN.name,), {}), {})
    with Progress("sweep", 12, show=False) as bar, StepFile(RUN, tmp_path) as worker:
        show_steps(read_steps(tmp_path), bar)
        assert (bar.ahead, bar.note) == (0, "erm photo loading data")
        with Progress("activations", 800, "images", done=64, show=worker, counts=False):
            show_steps(read_steps(tmp_path), bar)
            assert (bar.ahead, bar.note) == (0, "erm photo activations 64/800")
        with Progress("erm photo", 300, "steps", done=150, show=worker):
            show_steps(read_steps(tmp_path), bar)
        assert (bar.ahead, bar.note) == (0.5, "erm photo step 150/300")
        bar.advance()
        assert bar.ahead == 0  # that run is done
