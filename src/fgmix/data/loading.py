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

import torch
from torch import Tensor

from fgmix.data.dataset import Domain, HostInputs, Indices
from fgmix.data.sampling import Sampler
from fgmix.functional.batches import IndexedBatch
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

    def complete(self, x: Tensor) -> Batch:
        """Return the batch with its finished inputs x."""
        return (x, self.y) if self.indices is None else IndexedBatch(x, self.y, self.indices)


@dataclass(frozen=True)
class BatchSource:
    """The batches of the source domains: a pure function of the seed and the step."""

    domains: tuple[Domain, ...]
    sampler: Sampler
    seed: int  # of the augmentation
    indexed: bool = False  # whether batches have the places of their samples

    def prepare(self, step: int) -> list[HostBatch]:
        """Prepare the batches of a step on the host, one per source domain."""
        drawn = self.sampler.draw(step)
        batches = [
            HostBatch.of(domain, indices, torch_generator("augment", self.seed, d, step))
            for d, (domain, indices) in enumerate(zip(self.domains, drawn, strict=True))
        ]
        if not self.indexed:
            return batches
        return [replace(batch, indices=torch.from_numpy(indices)) for batch, indices in zip(batches, drawn)]

    def at(self, step: int) -> list[Batch]:
        """Compute (x, y) of each source domain at `step`, on the CPU."""
        return finish(self.prepare(step))


def deliver(
    prepare: Callable[[T], list[HostBatch]],
    items: Iterable[T],
    *,
    device: torch.device = CPU,
    workers: int | None = None,
) -> Iterator[list[Batch]]:
    """Yield the finished batches of prepare(item) for every item, in order; threads prepare the next ones ahead.

    `workers` threads (None for `default_workers()`) call `prepare`; `items` is iterated in the caller's thread.
    """
    workers = default_workers() if workers is None else workers
    if device == CPU:
        return (finish(batches) for batches in in_order(prepare, items, workers))
    bus = _Bus(device)
    return (finish(bus.receive(sent)) for sent in in_order(lambda item: bus.send(prepare(item)), items, workers))


def finish(batches: Sequence[HostBatch]) -> list[Batch]:
    """Compute (x, y) of each batch, on its device."""
    if len(batches) < 2 or batches[0].y.device.type == "cpu":  # a CPU is faster on batches that fit into its cache
        return [batch.complete(batch.inputs.finish()) for batch in batches]
    x = type(batches[0].inputs).join([batch.inputs for batch in batches]).finish()
    return [batch.complete(part) for batch, part in zip(batches, x.split([len(batch.y) for batch in batches]))]


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
    """Yield make(item) for every item, in order; `workers` threads compute at most `workers` + 1 items ahead.

    An exception in `make` is raised in place of its result. Closing or deleting the iterator ends the threads.

    >>> list(in_order(len, ["a", "bb", "ccc"], workers=2))
    [1, 2, 3]
    """
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
