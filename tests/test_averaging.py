"""The running mean of weights against a mean computed from all of them."""

from __future__ import annotations

import torch

from algorithms.toys import toy_algorithm, toy_batches
from fgmix.averaging import RunningMean, predictor_tensors


def snapshot(algorithm) -> dict[str, torch.Tensor]:  # type: ignore[no-untyped-def]
    return {name: tensor.clone() for name, tensor in predictor_tensors(algorithm).items()}


def test_mean_of_all_weights_from_the_start_on() -> None:
    erm = toy_algorithm("erm", lr=0.05)
    mean, seen = RunningMean(erm, start=3), []
    for step in range(1, 8):
        erm.step(toy_batches())
        mean.update(erm, step)
        seen.append(snapshot(erm))
        if step < 3:
            assert all(torch.equal(mean.tensors[name], now) for name, now in seen[-1].items())
    for name in seen[0]:
        expected = torch.stack([s[name].double() for s in seen[2:]]).mean(0)
        torch.testing.assert_close(mean.tensors[name].double(), expected, rtol=1e-5, atol=1e-6)


def test_applying_the_mean_leaves_training_untouched() -> None:
    """The trajectory with an average beside it is the one without."""
    plain, averaged = toy_algorithm("erm"), toy_algorithm("erm")
    mean = RunningMean(averaged, start=1)
    for step in range(1, 5):
        plain.step(toy_batches())
        averaged.step(toy_batches())
        mean.update(averaged, step)
        with mean.applied_to(averaged):
            assert all(torch.equal(now, mean.tensors[name]) for name, now in predictor_tensors(averaged).items())
    for name, tensor in predictor_tensors(plain).items():
        assert torch.equal(tensor, predictor_tensors(averaged)[name])


def test_integer_buffers_are_copied_not_averaged() -> None:
    erm = toy_algorithm("erm")
    erm.featurizer.net.stem.append(torch.nn.BatchNorm2d(16))
    mean = RunningMean(erm, start=1)
    for step in (1, 2, 3):
        erm.step(toy_batches())
        mean.update(erm, step)
    counted = [tensor for name, tensor in mean.tensors.items() if name.endswith("num_batches_tracked")]
    assert [int(tensor) for tensor in counted] == [3]
