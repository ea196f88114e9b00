"""Checkpoints: CPU seconds and peak memory beside plain `torch.save`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from benchmarks.turns import Turns, by_turns
from fgmix.algorithms import create
from fgmix.networks import build_featurizer
from fgmix.training.averaging import RunningMean
from fgmix.training.devices import torch_threads
from fgmix.training.state import TrainingState, save_checkpoint


@dataclass(frozen=True)
class CheckpointCost:
    """Megabytes of a checkpoint and of the memory that writing it adds, and CPU seconds of ours and of `torch.save`."""

    size: float
    added: float
    turns: Turns


def measure_checkpoint(backbone: str = "resnet50", *, rounds: int = 5) -> CheckpointCost:
    """Write the network, Adam's moments and an average alternately as a run does and by `torch.save` to a path."""
    featurizer = build_featurizer(backbone, (3, 64, 64))
    erm = create("erm", featurizer=featurizer, classifier=nn.Linear(featurizer.out_features, 7), n_domains=1)
    with torch_threads(1), TemporaryDirectory() as folder:
        erm.step([(torch.randn(2, 3, 64, 64), torch.zeros(2, dtype=torch.long))])
        average = RunningMean(erm, start=1)
        average.update(1)
        paths = Path(folder) / "checkpoint.pt", Path(folder) / "checkpoint.before.pt"

        def ours(_: int) -> None:
            save_checkpoint(paths, erm, average, TrainingState(step=1))()

        def plain(_: int) -> None:
            torch.save({"algorithm": erm.state_dict(), "average": average.state_dict()}, Path(folder) / "plain.pt")

        plain(0)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins at what is held now
        before = _read_memory("VmRSS")
        ours(0)
        added = _read_memory("VmHWM") - before
        turns = by_turns(ours, plain, rounds, time.process_time)
        return CheckpointCost(paths[0].stat().st_size / 1e6, added, turns)


def _read_memory(name: str) -> float:
    """Read a line of Linux's status of this process, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1e3
