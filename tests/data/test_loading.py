"""Batches depend on the seed, the domain and the step alone, reach any device, and end with whoever takes them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from data.test_augment import inputs
from fgmix.data import Domain, from_arrays
from fgmix.data.loading import (
    Batch,
    BatchSource,
    HostBatch,
    default_workers,
    deliver,
    finish,
    in_order,
    share_cores,
)
from fgmix.data.sampling import UniformSampler

META = torch.device("meta")


def images(seed: int = 0) -> BatchSource:
    """Three domains of the same six images with labels of their own."""
    domains = tuple(Domain(name, inputs(), (np.arange(6) + d) % 3) for d, name in enumerate("abc"))
    return BatchSource(domains, UniformSampler(seed, (np.arange(6),) * 3, 5), seed)


def vectors(dtype: type = np.float64) -> BatchSource:
    x = np.random.default_rng(0).integers(0, 256, (40, 3)).astype(dtype)
    data = from_arrays(x, np.arange(40) % 2, np.arange(40) // 20)
    return BatchSource(data.domains, UniformSampler(0, (np.arange(20),) * 2, 4), seed=0)


def same(ours: list[Batch], theirs: list[Batch]) -> bool:
    return all(
        torch.equal(x, x_theirs) and torch.equal(y, y_theirs)
        for (x, y), (x_theirs, y_theirs) in zip(ours, theirs, strict=True)
    )


@pytest.mark.parametrize("source", [images(), vectors()], ids=["images", "vectors"])
@pytest.mark.parametrize("workers", [1, 2, 8])
def test_batches_do_not_depend_on_the_threads(source: BatchSource, workers: int) -> None:
    batches = list(deliver(source.prepare, range(9), workers=workers))
    assert len(batches) == 9
    assert all(same(batch, source.at(step)) for step, batch in enumerate(batches))


def test_batches_do_not_depend_on_where_a_run_resumed() -> None:
    from_the_start = list(deliver(images().prepare, range(9), workers=3))
    resumed = list(deliver(images().prepare, range(6, 9), workers=2))
    assert all(same(a, b) for a, b in zip(from_the_start[6:], resumed, strict=True))


def test_seeds_domains_and_steps_differ() -> None:
    (first, second, _), (next_step, _, _) = images().at(0), images().at(1)
    other_seed = images(seed=1).at(0)[0]
    assert not any(torch.equal(first[0], other[0]) for other in (second, next_step, other_seed))


def test_arrays_are_the_rows_themselves() -> None:
    for (x, y), domain, indices in zip(vectors().at(3), vectors().domains, vectors().sampler.draw(3), strict=True):
        assert torch.equal(x, torch.from_numpy(domain.inputs.x[indices]))
        assert y.tolist() == domain.y[indices].tolist()


def test_bytes_of_arrays_cross_the_bus() -> None:
    moved: list[Tensor] = []
    (batch, _) = vectors(np.uint8).prepare(0)
    x = batch.move(lambda t: moved.append(t) or t).inputs.finish()
    assert {t.dtype for t in moved} == {torch.uint8, torch.int64}
    assert x.dtype == torch.float32
    assert x.max() <= 1


@pytest.mark.parametrize("source", [images(), vectors()], ids=["images", "vectors"])
def test_batches_reach_the_device(source: BatchSource) -> None:
    """Without a value of theirs being looked at, for the meta device has none."""
    for batches, expected in zip(deliver(source.prepare, range(3), device=META), map(source.at, range(3)), strict=True):
        for (x, y), (x_host, y_host) in zip(batches, expected, strict=True):
            assert (x.device, x.shape, x.dtype) == (META, x_host.shape, x_host.dtype)
            assert (y.device, y.shape, y.dtype) == (META, y_host.shape, y_host.dtype)


def test_evaluation_takes_clean_parts_of_domains() -> None:
    domain = images().domains[0]
    parts = [np.array([0, 1]), np.array([2])]
    found = list(deliver(lambda part: [HostBatch.of(domain, part)], parts, workers=2))
    assert all(same(ours, [(domain.inputs.clean(p), torch.from_numpy(domain.y[p]))]) for ours, p in zip(found, parts))


def test_an_error_while_preparing_reaches_the_loop() -> None:
    source = vectors()
    broken = BatchSource(source.domains, UniformSampler(0, (np.array([99]), np.array([0])), 4), seed=0)
    with pytest.raises(IndexError):
        next(deliver(broken.prepare, range(3)))


def test_leaving_the_loop_ends_the_threads() -> None:
    for _ in deliver(vectors().prepare, range(1000), workers=3):
        break
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fgmix-data")]


def test_a_gpu_gets_its_copies_in_a_stream_that_the_step_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls and their order, with streams that only take notes; there is no GPU here."""
    notes: list[str] = []

    def note(text: str, result: object = None) -> object:
        notes.append(text)
        return result

    stream = SimpleNamespace(record_event=lambda: note("copied", "event"))
    step = SimpleNamespace(wait_event=lambda event: note(f"step waits for the {event}"))
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: stream)
    monkeypatch.setattr(
        torch.cuda, "stream", lambda s: nullcontext(note("copies beside the step")) if s is stream else 0
    )
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: step)
    monkeypatch.setattr(Tensor, "pin_memory", lambda t: note("pinned", t))
    monkeypatch.setattr(Tensor, "record_stream", lambda _, s: note("kept for the step") if s is step else None)
    monkeypatch.setattr(Tensor, "to", lambda t, _, non_blocking=False: note("sent" if non_blocking else "awaited", t))

    (batches,) = deliver(lambda _: vectors().prepare(0), [0], device=torch.device("cuda"), workers=1)
    assert notes == [
        "copies beside the step",
        *["pinned", "sent"] * 4,  # x and y of two domains
        "copied",
        "step waits for the event",
        *["kept for the step"] * 4,
    ]
    assert same(batches, finish(vectors().prepare(0)))


# Results come in order from any number of threads, with their errors, and the threads end with the caller


def data_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("fgmix-data")]


@pytest.mark.parametrize("workers", [1, 2, 8])
@pytest.mark.parametrize("n", [0, 1, 3, 50])
def test_results_are_in_order(workers: int, n: int) -> None:
    assert list(in_order(lambda i: i * i, range(n), workers)) == [i * i for i in range(n)]
    assert data_threads() == []


def test_a_slow_first_result_is_waited_for() -> None:
    """The second is done before the first may start."""
    second_done = threading.Event()

    def make(i: int) -> int:
        if i == 0:
            assert second_done.wait(timeout=30)
        if i == 1:
            second_done.set()
        return i

    assert list(in_order(make, range(4), 2)) == [0, 1, 2, 3]


def test_threads_work_side_by_side() -> None:
    """Three wait for each other, which one or two threads could never do."""
    barrier = threading.Barrier(3, timeout=30)
    assert len(list(in_order(lambda _: barrier.wait(), range(6), 3))) == 6


def test_only_so_many_are_made_ahead() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for i in range(100):
            taken.append(i)
            yield i

    results = in_order(lambda i: i, items(), 2)
    assert taken == []
    next(results)
    assert len(taken) == 4  # the one in hand, and one more than there are threads
    next(results)
    assert len(taken) == 5


def test_an_error_comes_where_its_result_would_have_come() -> None:
    def make(i: int) -> int:
        if i == 2:
            raise KeyError("two")
        return i

    results = in_order(make, range(5), 4)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(KeyError, match="two"):
        next(results)
    assert data_threads() == []


def test_stopping_early_ends_the_threads() -> None:
    results = in_order(lambda i: i, range(1000), 3)
    next(results)
    assert len(data_threads()) > 0
    results.close()
    assert data_threads() == []


def test_leaving_a_loop_ends_the_threads() -> None:
    for i in in_order(lambda i: i, range(1000), 3):
        if i == 5:
            break
    assert data_threads() == []


@pytest.mark.parametrize(("processes", "threads"), [(1, 4), (2, 3), (3, 2), (8, 1)])
def test_processes_side_by_side_share_the_cores(processes: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that was given 6 cores of its node; one process takes 4 of them at most."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    monkeypatch.setattr("fgmix.data.loading._processes", 1)
    share_cores(processes)
    assert default_workers() == threads
