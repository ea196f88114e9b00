"""Compute results ahead of their use, in several threads and in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from fgmix.errors import bad_value

S = TypeVar("S")
T = TypeVar("T")

MOST_WORKERS = 4  # a core resizes more than 2,000 images per second to 224 px, and one GPU trains on 1,000 to 2,500


_processes = 1  # number of processes that share the cores


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
    if workers < 1:
        raise bad_value("workers", "a positive integer", workers)
    return _in_order(make, iter(items), workers)


def _in_order(make: Callable[[S], T], items: Iterator[S], workers: int) -> Iterator[T]:
    pool = ThreadPoolExecutor(workers, thread_name_prefix="fgmix-data")
    waiting: deque[Future[T]] = deque()
    try:
        waiting.extend(pool.submit(make, item) for item in islice(items, workers + 1))
        while waiting:
            done = waiting.popleft().result()
            waiting.extend(pool.submit(make, item) for item in islice(items, 1))
            yield done
    finally:
        pool.shutdown(cancel_futures=True)
