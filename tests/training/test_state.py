"""The metrics of steps between two evaluations, and the files of tensors."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import torch

import fgmix
from fgmix.data import from_arrays
from fgmix.mixing.effect import METRICS
from fgmix.records.schema import RunSpec
from fgmix.training.state import TrainingState, is_measured, read_weights, write_tensors


def test_a_metric_is_averaged_over_the_steps_that_have_it() -> None:
    state = TrainingState()
    state.add({"loss": torch.tensor(1.0), "gap": torch.tensor(4.0)})
    state.add({"loss": torch.tensor(3.0)})
    assert state.average_metrics() == {"loss": 2.0, "gap": 4.0}


def test_every_tenth_step_is_measured_and_the_one_before_an_evaluation() -> None:
    assert [step for step in range(1, 31) if is_measured(step, {25, 30})] == [10, 20, 25, 30]


def test_costly_metrics_are_recorded_by_every_evaluation(tmp_path: Path) -> None:
    """Also between evaluations that are fewer than ten steps apart."""
    rng, y = np.random.default_rng(0), np.arange(240) % 3
    data = from_arrays(rng.normal(size=(240, 4)) + y[:, None], y, np.arange(240) // 80)
    spec = RunSpec(dataset="arrays", algorithm="fgmix", test_domains=("2",), steps=12, eval_every=4, batch_size=8)
    record = fgmix.train(spec, tmp_path, dataset=data, progress=False)
    assert [evaluation.step for evaluation in record.evaluations] == [4, 8, 12]
    assert all({*METRICS, "lam", "mixed", "loss"} <= evaluation.metrics.keys() for evaluation in record.evaluations)
    assert record.evaluations[-1].metrics["mixed"] == 32


def test_a_file_of_tensors_is_written_without_a_copy_of_all(tmp_path: Path) -> None:
    """One tensor at a time is copied to bytes."""
    tensors = {f"t{i}": torch.full((2**18,), float(i)) for i in range(16)}  # 1 MB each
    write_tensors(tmp_path / "t.pt", tensors)  # imports and buffers
    tracemalloc.start()
    try:
        write_tensors(tmp_path / "t.pt", tensors)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4e6
    assert torch.equal(read_weights(tmp_path / "t.pt")["t15"], tensors["t15"])
