"""A run that is killed at a named moment: by an exception, or as a script of test_resume.py, by SIGKILL."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fgmix.data import DomainDataset, from_arrays
from fgmix.records.schema import RunSpec


def toy_data() -> DomainDataset:
    """Three domains of three shifted Gaussians."""
    rng = np.random.default_rng(0)
    y, domain = np.arange(180) % 3, np.arange(180) // 60
    return from_arrays(rng.normal(size=(180, 6)) + y[:, None] + 0.3 * domain[:, None], y, domain)


def toy_spec(algorithm: str = "erm") -> RunSpec:
    """Short, yet with dropout, several evaluations, checkpoints off their grid, averaging and snapshots."""
    return RunSpec(
        dataset="arrays",
        algorithm=algorithm,
        test_domains=("2",),
        steps=30,
        batch_size=8,
        eval_every=10,
        checkpoint_every=4,
        averaging_start=5,
        dropout=0.1,
        snapshots=3,
    )


class Killed(BaseException):
    """Ends a run within the test's process; nothing catches it."""


def die() -> None:
    raise Killed


def kill_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(patch: pytest.MonkeyPatch, moment: str, count: int, end: Callable[[], None] = die) -> None:
    """Patch the code so that the run ends at the `count`-th occurrence of `moment`."""
    from fgmix.records import files
    from fgmix.records.store import RunFolder
    from fgmix.training import evaluate, loop

    occurrences = iter(range(1, 10_000))

    def is_due() -> bool:
        return next(occurrences) == count

    if moment == "step":
        step = loop._Loop._step

        def dying_step(self: Any, batches: Any) -> None:
            step(self, batches)
            if is_due():
                self.written.result()  # the last checkpoint is on the disk
                end()

        patch.setattr(loop._Loop, "_step", dying_step)
    elif moment == "evaluation":
        score_subsets = evaluate.score_subsets

        def dying_score(*args: Any) -> dict[str, list[evaluate.Score]]:
            if is_due():
                end()
            return score_subsets(*args)

        patch.setattr(evaluate, "score_subsets", dying_score)
    elif moment == "metrics line":
        append = RunFolder.append

        def torn_append(self: RunFolder, line: Any) -> int:
            if is_due():
                with open(self.metrics, "a") as file:
                    file.write('{"step": 10, "accu')
                end()
            return append(self, line)

        patch.setattr(RunFolder, "append", torn_append)
    else:  # "checkpoint.pt", "best.pt", "record.json", …: half of the file is written, then the run ends

        class Torn(io.BufferedWriter):
            def write(self, data: Any) -> int:
                super().write(data[: len(data) // 2])
                self.flush()
                end()
                return len(data)

        def torn_open(path: Path, mode: str, **how: Any) -> Any:
            is_torn = mode == "xb" and path.name.startswith(f".{moment}.") and is_due()
            return Torn(io.FileIO(path, "x")) if is_torn else open(path, mode, **how)

        patch.setattr(files, "open", torn_open, raising=False)


if __name__ == "__main__":
    from fgmix.training.loop import train

    torch.set_num_threads(1)
    out, moment, count = sys.argv[1:]
    kill_at(pytest.MonkeyPatch(), moment, int(count), kill_process)
    train(toy_spec(), out, dataset=toy_data(), device="cpu", progress=False)
