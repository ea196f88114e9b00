"""Operations of a step, the same on every machine: floating-point ones (the `cost` of a method) and launches."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
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


class LaunchCounter(TorchDispatchMode):
    """Counts dispatched operations that compute: each is a kernel launch on a GPU. Views, empty tensors and what only a
    CPU does (copies to oneDNN's tensors) are free."""

    FREE = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "squeeze_")
    FREE += ("to_mkldnn", "_to_dense", "mkldnn_to_dense")

    def __init__(self) -> None:
        super().__init__()
        self.launches = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.launches += func.namespace == "aten" and not func.is_view and name not in self.FREE
        return func(*args, **(kwargs or {}))


def count_launches(name: str, *, backbone: str = "resnet18", image_size: int = 64, batch_size: int = 8) -> int:
    """Count the launches of a step on a CPU: 3 domains, 7 classes, all parts active, without costly metrics."""
    algorithm = build_algorithm(name, backbone, image_size, 3, 7)
    layout = torch.channels_last if uses_channels_last(backbone) else torch.contiguous_format
    batches = make_batches(image_size, batch_size, 3, 7, layout)
    algorithm.step(batches)  # makes the state of the optimiser
    algorithm.measures = False
    with LaunchCounter() as counter:
        algorithm.step(batches)
    return counter.launches
