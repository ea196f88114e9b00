"""CPU time of networks for images: channels-last against contiguous layout, and by the images of a forward pass."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from benchmarks.turns import Turns, by_turns
from fgmix.networks import build_featurizer
from fgmix.networks.featurizer import Featurizer
from fgmix.training.devices import torch_threads

PIXELS = 128 * 64 * 64  # of all images of a round
PIECES = (2, 8, 16, 32, 64)  # images of a forward pass


@dataclass(frozen=True)
class Layouts:
    """CPU seconds of the same work in channels-last layout (ours) and contiguous (theirs)."""

    backbone: str
    image_size: int
    work: str
    images: int
    turns: Turns


def measure_layouts(backbones: Sequence[str], image_sizes: Sequence[int], *, rounds: int = 5) -> Iterator[Layouts]:
    """Time the forward pass of an evaluation, and forward and backward pass of training, in both layouts."""
    for backbone in backbones:
        for size in image_sizes:
            n = max(16, PIXELS // size**2)
            x = torch.randn(n, 3, size, size)
            last, contiguous = (build_featurizer(backbone, (3, size, size), channels_last=on) for on in (True, False))
            x_last = x.contiguous(memory_format=torch.channels_last)
            with torch_threads(1):
                for work, call in (("evaluate", _evaluate), ("train", _train)):
                    ours, theirs = partial(call, last, x_last), partial(call, contiguous, x)
                    ours(0), theirs(0)
                    yield Layouts(backbone, size, work, n, by_turns(ours, theirs, rounds, time.process_time))


def measure_pieces(
    backbones: Sequence[str], image_sizes: Sequence[int], *, rounds: int = 3
) -> Iterator[tuple[str, int, dict[int, float]]]:
    """Time the evaluation of 64 images, n at a time; yields the network, the size, and seconds per image by n."""
    for backbone in backbones:
        for size in image_sizes:
            net = build_featurizer(backbone, (3, size, size), channels_last=True).eval().net
            x = torch.randn(max(PIECES), 3, size, size)
            seconds: dict[int, list[float]] = {n: [] for n in PIECES}
            with torch_threads(1), torch.inference_mode():
                for n in [*PIECES, *PIECES[::-1]] * (rounds // 2) + [*PIECES] * (rounds % 2):
                    started = time.process_time()
                    for piece in x.split(n):
                        net(piece)
                    seconds[n].append((time.process_time() - started) / len(x))
            yield backbone, size, {n: statistics.median(each) for n, each in seconds.items()}


def _evaluate(featurizer: Featurizer, x: Tensor, _: int) -> None:
    with torch.inference_mode():
        featurizer.eval()(x)


def _train(featurizer: Featurizer, x: Tensor, _: int) -> None:
    featurizer.train()(x).square().mean().backward()
    featurizer.zero_grad()
