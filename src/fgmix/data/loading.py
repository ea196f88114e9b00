"""Batches on the training device, prepared ahead of the steps that use them.

    host threads    crop and resize to bytes, sample the augmentation        `Inputs.prepare`
    bus             bytes and parameters, from page-locked memory, in a separate stream
    device          floats, flip, colours, normalisation                     `HostInputs.finish`

A batch depends only on the seed, the domain and the step: neither on the number of threads, nor on where a run was
resumed.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from fgmix.data.dataset import Domain, HostInputs, Indices
from fgmix.data.sampling import Sampler, SampleWeights
from fgmix.functional.domains import IndexedBatch
from fgmix.seeding import torch_generator

S = TypeVar("S")
T = TypeVar("T")
Batch = tuple[Tensor, Tensor]  # x, y

CPU = torch.device("cpu")
MOST_WORKERS = 4  # a core resizes more than 2,000 images per second to 224 px, and one GPU trains on 1,000 to 2,500
_processes = 1  # number of processes that share the cores


@dataclass(frozen=True)
class HostBatch:
    """Samples of one domain, prepared on the host, with their labels."""

    inputs: HostInputs
    y: Tensor
    indices: Tensor | None = None  # places of the samples in their domain, for methods that need them

    @classmethod
    def of(cls, domain: Domain, indices: Indices, generator: torch.Generator | None = None) -> HostBatch:
        """Prepare samples of a domain, augmented by `generator` or clean without one."""
        return cls(domain.inputs.prepare(indices, generator), torch.from_numpy(domain.y[indices]))

    def move(self, move: Callable[[Tensor], Tensor]) -> HostBatch:
        """Move every tensor."""
        return HostBatch(self.inputs.move(move), move(self.y), None if self.indices is None else move(self.indices))


@dataclass(frozen=True)
class BatchSource:
    """The batches of the source domains: a pure function of the seed and the step."""

    domains: tuple[Domain, ...]
    sampler: Sampler
    seed: int  # of the augmentation
    indexed: bool = False  # whether batches have the places of their samples
    n_classes: int = 0  # C, if y is (b, C): the probabilities of the classes, times the weights; 0 if y is (b,)
    weights: tuple[SampleWeights, ...] = ()  # of all samples of each domain, in the loss; empty for equal ones

    @property
    def workers(self) -> int | None:
        """Choose the number of threads that prepare batches: none for rows of arrays, which cost less."""
        return 0 if all(domain.inputs.at_hand for domain in self.domains) else None

    def prepare(self, step: int) -> list[HostBatch]:
        """Prepare the batches of a step on the host, one per source domain."""
        batches = []
        for d, (domain, indices) in enumerate(zip(self.domains, self.sampler.draw(step), strict=True)):
            generator = None if domain.inputs.at_hand else torch_generator("augment", self.seed, d, step)
            batch = HostBatch.of(domain, indices, generator)
            if self.n_classes:
                y = domain.target(indices, self.n_classes)
                y = y * self.weights[d][indices, None].astype(np.float32) if self.weights else y
                batch = replace(batch, y=torch.from_numpy(y))
            batches.append(replace(batch, indices=torch.from_numpy(indices)) if self.indexed else batch)
        return batches

    def at(self, step: int) -> list[Batch]:
        """Compute (x, y) of each source domain at `step`, on the CPU."""
        return finish(self.prepare(step))


def deliver(
    prepare: Callable[[T], list[HostBatch]],
    items: Iterable[T],
    *,
    device: torch.device = CPU,
    workers: int | None = None,
    channels_last: bool = False,
) -> Iterator[list[Batch]]:
    """Yield the finished batches of prepare(item) for every item, in order; threads prepare the next ones ahead.

    `workers` threads (None for `default_workers()`) call `prepare`; `items` is iterated in the caller's thread, which
    also calls `prepare` if there are none. Images
    are laid out in memory with their channels last, if that is wanted.
    """
    workers = default_workers() if workers is None else workers
    if device == CPU:
        return (finish(batches, channels_last) for batches in in_order(prepare, items, workers))
    bus = _Bus(device)
    sent = in_order(lambda item: bus.send(prepare(item)), items, workers)
    return (finish(bus.receive(each), channels_last) for each in sent)


def finish(batches: Sequence[HostBatch], channels_last: bool = False) -> list[Batch]:
    """Compute (x, y) of each batch, on its device."""
    if len(batches) < 2 or batches[0].y.device.type == "cpu":  # a CPU is faster on batches that fit into its cache
        inputs: Sequence[Tensor] = [batch.inputs.finish() for batch in batches]
    else:
        x = type(batches[0].inputs).join([batch.inputs for batch in batches]).finish()
        inputs = x.split([len(batch.y) for batch in batches])
    if channels_last and inputs[0].ndim == 4:
        inputs = [x.contiguous(memory_format=torch.channels_last) for x in inputs]
    return [
        (x, batch.y) if batch.indices is None else IndexedBatch(x, batch.y, batch.indices)
        for batch, x in zip(batches, inputs)
    ]


_Sent = tuple[list[HostBatch], torch.cuda.Event | None]  # batches being copied, and the event that marks the end


class _Bus:
    """Sends batches to another device; to a GPU in a separate stream, concurrently with the training step."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def send(self, batches: Sequence[HostBatch]) -> _Sent:
        """Start the copies; called in the threads that prepare batches."""
        if self.stream is None:
            return [batch.move(lambda t: t.to(self.device)) for batch in batches], None
        with torch.cuda.stream(self.stream):
            # non-blocking copies read page-locked memory, which torch does not reuse before they have finished
            copies = [batch.move(lambda t: t.pin_memory().to(self.device, non_blocking=True)) for batch in batches]
            return copies, self.stream.record_event()

    def receive(self, sent: _Sent) -> list[HostBatch]:
        """Return the copies for the device's current stream, which waits for them; the host does not."""
        batches, arrived = sent
        if arrived is None:
            return batches
        current = torch.cuda.current_stream(self.device)
        current.wait_event(arrived)

        def keep(t: Tensor) -> Tensor:
            t.record_stream(current)  # else its memory could be reused by a later copy while the step still reads it
            return t

        return [batch.move(keep) for batch in batches]


# Threads that prepare batches, and read image files


def share_cores(processes: int) -> None:
    """Set the number of processes that train at the same time on the cores of this process."""
    global _processes
    _processes = max(1, processes)


def usable_cores() -> int:
    """Count the cores that this process may use, which in a cluster job is often a part of the node's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers() -> int:
    """Choose the number of threads that prepare batches."""
    return max(1, min(MOST_WORKERS, usable_cores() // _processes))


def in_order(make: Callable[[S], T], items: Iterable[S], workers: int) -> Iterator[T]:
    """Yield make(item) for every item, in order; `workers` threads compute at most `workers` + 1 items ahead, none of
    them if there is no thread.

    An exception in `make` is raised in place of its result. Closing or deleting the iterator ends the threads.

    >>> list(in_order(len, ["a", "bb", "ccc"], workers=2))
    [1, 2, 3]
    """
    if not workers:
        yield from map(make, items)
        return
    left = iter(items)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="fgmix-data")
    waiting: deque[Future[T]] = deque()
    try:
        waiting.extend(pool.submit(make, item) for item in islice(left, workers + 1))
        while waiting:
            done = waiting.popleft().result()
            waiting.extend(pool.submit(make, item) for item in islice(left, 1))
            yield done
    finally:
        pool.shutdown(cancel_futures=True)
