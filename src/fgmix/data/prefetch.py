"""Work done ahead of whoever takes its results, by several threads, in order."""

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


_processes = 1  # that share the cores


def share_cores(processes: int) -> None:
    """Tell this process that it is one of several that train side by side on the same cores."""
    global _processes
    _processes = max(1, processes)


def usable_cores() -> int:
    """Cores that this process may use: a job of a cluster often has a part of its node's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers() -> int:
    """Threads that prepare batches, unless the user says how many."""
    return max(1, min(MOST_WORKERS, usable_cores() // _processes))


def in_order(make: Callable[[S], T], items: Iterable[S], workers: int) -> Iterator[T]:
    """make(item) for every item, in order, made ahead by `workers` threads: at most one result more than threads.

    An exception in `make` is raised where its result would have been returned. A caller that stops early ends the
    threads by closing the iterator or by dropping it.

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
