"""Batches on the device that trains, made ahead of the step that needs them.

    host threads    crop and resize to bytes, draw the augmentation          `Inputs.prepare`
    bus             bytes and draws, from page-locked memory, in a stream of their own
    device          floats, flip, colours, normalisation                     `Prepared.finish`

What a batch holds depends on the seed, the domain and the step alone: neither on the number of threads, nor on where a
run was resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from fgmix.data._dataset import Domain, Indices, Prepared
from fgmix.data.prefetch import default_workers, in_order
from fgmix.data.sampling import ClassAwareSampler, PairedSampler, UniformSampler
from fgmix.seeding import torch_generator

T = TypeVar("T")
Batch = tuple[Tensor, Tensor]  # x, y

CPU = torch.device("cpu")


@dataclass(frozen=True)
class HostBatch:
    """Samples of one domain after the host's part of the work, with their labels."""

    inputs: Prepared
    y: Tensor

    @classmethod
    def of(cls, domain: Domain, indices: Indices, generator: torch.Generator | None = None) -> HostBatch:
        """Prepare samples of a domain, augmented by `generator` or clean without one."""
        return cls(domain.inputs.prepare(indices, generator), torch.from_numpy(domain.y[indices]))

    def moved(self, move: Callable[[Tensor], Tensor]) -> HostBatch:
        """The same with every tensor moved."""
        return HostBatch(self.inputs.moved(move), move(self.y))


@dataclass(frozen=True)
class BatchSource:
    """The batches of the source domains: a pure function of the seed and the step.

    Args:
        domains: the source domains.
        sampler: draws the indices.
        seed: of the augmentation.
    """

    domains: tuple[Domain, ...]
    sampler: UniformSampler | ClassAwareSampler | PairedSampler
    seed: int

    def prepare(self, step: int) -> list[HostBatch]:
        """The host's part of the step's batches, one per source domain."""
        return [
            HostBatch.of(domain, indices, torch_generator("augment", self.seed, d, step))
            for d, (domain, indices) in enumerate(zip(self.domains, self.sampler.draw(step)))
        ]

    def at(self, step: int) -> list[Batch]:
        """(x, y) of each source domain at `step`, on the CPU."""
        return finish(self.prepare(step))

    def ahead(
        self, first: int, last: int, *, device: torch.device = CPU, workers: int | None = None
    ) -> Iterator[list[Batch]]:
        """(x, y) of each source domain at the steps first…last−1, on the device.

        Args:
            first: the first step.
            last: the step after the last.
            device: where the batches are needed.
            workers: threads that prepare them; `default_workers()` unless given.
        """
        return deliver(self.prepare, range(first, last), device=device, workers=workers)

    def labels(self, step: int) -> list[Indices]:
        """The labels y of the step's batches, on the host: for draws that depend on them."""
        return [domain.y[indices] for domain, indices in zip(self.domains, self.sampler.draw(step))]


def deliver(
    prepare: Callable[[T], list[HostBatch]],
    items: Iterable[T],
    *,
    device: torch.device = CPU,
    workers: int | None = None,
) -> Iterator[list[Batch]]:
    """Finished batches of prepare(item) for every item, in order; threads prepare and send those to come.

    Args:
        prepare: the host's part; runs in threads, several at a time.
        items: what to prepare, taken in the caller's thread.
        device: where the batches are needed.
        workers: threads; `default_workers()` unless given.
    """
    bus = _Bus(device)
    sent = in_order(lambda item: bus.send(prepare(item)), items, default_workers() if workers is None else workers)
    return (finish(bus.receive(batches)) for batches in sent)


def finish(batches: Sequence[HostBatch]) -> list[Batch]:
    """(x, y) of each batch, on the device where it is."""
    if len(batches) < 2 or batches[0].y.device.type == "cpu":  # a CPU is faster on what fits into its cache
        return [(batch.inputs.finish(), batch.y) for batch in batches]
    x = type(batches[0].inputs).join([batch.inputs for batch in batches]).finish()
    return list(zip(x.split([len(batch.y) for batch in batches]), (batch.y for batch in batches)))


class _Bus:
    """Sends batches to a device; to a GPU beside the training step, in a stream of its own.

    Args:
        device: where to.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def send(self, batches: Sequence[HostBatch]) -> _Sent:
        """Start the copies; called in the threads that prepare."""
        if self.stream is None:
            return _Sent([batch.moved(lambda t: t.to(self.device)) for batch in batches])
        with torch.cuda.stream(self.stream):
            # non-blocking copies read page-locked memory, which torch does not reuse before they are done
            copies = [batch.moved(lambda t: t.pin_memory().to(self.device, non_blocking=True)) for batch in batches]
            return _Sent(copies, self.stream.record_event())

    def receive(self, sent: _Sent) -> list[HostBatch]:
        """The copies, for the device's current stream: it waits for them, the host does not."""
        if sent.arrived is None:
            return sent.batches
        current = torch.cuda.current_stream(self.device)
        current.wait_event(sent.arrived)

        def kept(t: Tensor) -> Tensor:
            t.record_stream(current)  # else its memory could be given to a later copy while the step still reads it
            return t

        return [batch.moved(kept) for batch in sent.batches]


@dataclass(frozen=True)
class _Sent:
    """Batches on their way to a device, and the event that marks their arrival."""

    batches: list[HostBatch]
    arrived: torch.cuda.Event | None = None
