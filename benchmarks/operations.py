"""Floating-point operations of a step: the `cost` that methods declare, the same on every machine."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.steps import build_algorithm, make_batches, uses_channels_last

STEPS = 6  # a multiple of the periods, 2 and 3, of methods that update an adversary in some steps


def relative_operations(name: str, *, backbone: str = "resnet18", image_size: int = 64, batch_size: int = 8) -> float:
    """Operations of a step relative to ERM: 3 domains, 7 classes, all parts active (`at_work`), mean of 6 steps.

    Convolutions and matrix products are counted, forward and backward. The ratio hardly depends on the backbone, the
    image size or the batch size. Times include what is not counted, such as the optimiser and waiting.

    Args:
        name: registered name.
        backbone: the network.
        image_size: side of the images.
        batch_size: samples per domain.

    Example:
        >>> relative_operations("erm", backbone="small_cnn", image_size=16)
        1.0
    """
    method, erm = (_operations(each, backbone, image_size, batch_size) for each in (name, "erm"))
    return method / erm


def _operations(name: str, backbone: str, image_size: int, batch_size: int) -> int:
    algorithm = build_algorithm(name, backbone, image_size, 3, 7)
    layout = torch.channels_last if uses_channels_last(backbone) else torch.contiguous_format
    batches = make_batches(image_size, batch_size, 3, 7, layout)
    with FlopCounterMode(display=False) as counter:
        for _ in range(STEPS):
            algorithm.step(batches)
    return int(counter.get_total_flops())
