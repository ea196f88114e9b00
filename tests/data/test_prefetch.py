"""Results come in order from any number of threads, with their errors, and the threads end with the caller."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from fgmix.data.prefetch import default_workers, in_order, share_cores
from fgmix.errors import UserError


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


def test_bad_numbers_are_named_at_once() -> None:
    with pytest.raises(UserError, match="`workers` should be a positive integer"):
        in_order(len, [], 0)


@pytest.mark.parametrize(("processes", "threads"), [(1, 4), (2, 3), (3, 2), (8, 1)])
def test_processes_side_by_side_share_the_cores(processes: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that was given 6 cores of its node; one process takes 4 of them at most."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    monkeypatch.setattr("fgmix.data.prefetch._processes", 1)
    share_cores(processes)
    assert default_workers() == threads
