"""A run that kills its own process with SIGKILL at a named moment. Started by test_resume.py as a script."""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
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


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(moment: str, count: int) -> None:
    """Patch the code so that the process dies at the `count`-th occurrence of `moment`."""
    from fgmix.records import files
    from fgmix.records.store import RunFolder
    from fgmix.training import evaluate, loop

    seen = {"n": 0}

    def due() -> bool:
        seen["n"] += 1
        return seen["n"] == count

    if moment == "step":
        step = loop._Loop._step

        def dying_step(self: Any, batches: Any) -> None:
            step(self, batches)
            if due():
                kill()

        loop._Loop._step = dying_step  # type: ignore[method-assign]
    elif moment == "evaluation":
        score_subsets = evaluate.score_subsets

        def dying_score(*args: Any) -> dict[str, list[evaluate.Score]]:
            if due():
                kill()
            return score_subsets(*args)

        evaluate.score_subsets = dying_score  # type: ignore[assignment]
    elif moment == "metrics line":
        append = RunFolder.append

        def torn_append(self: RunFolder, line: Any) -> int:
            if due():
                with open(self.metrics, "a") as file:
                    file.write('{"step": 10, "accu')
                kill()
            return append(self, line)

        RunFolder.append = torn_append  # type: ignore[method-assign]
    else:  # "checkpoint.pt", "best.pt", "record.json", …: half of the file is written, then the process dies

        class Torn(io.BufferedWriter):
            def write(self, data: Any) -> int:
                super().write(data[: len(data) // 2])
                self.flush()
                kill()
                return len(data)

        def torn_open(path: Path, mode: str, **how: Any) -> Any:
            is_torn = mode == "xb" and path.name.startswith(f".{moment}.") and due()
            return Torn(io.FileIO(path, "x")) if is_torn else open(path, mode, **how)

        files.open = torn_open  # type: ignore[attr-defined]


if __name__ == "__main__":
    from fgmix.training.loop import train

    torch.set_num_threads(1)
    out, moment, count, algorithm = sys.argv[1:]
    arm(moment, int(count))
    train(toy_spec(algorithm), out, dataset=toy_data(), device="cpu", progress=False)
