"""Process many files in parallel. Threads suffice: reading, hashing and Pillow's decoding release the GIL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")

WINDOW = 256  # items submitted at once, which bounds the memory of results that are not consumed yet


def in_threads(function: Callable[[S], T], items: Sequence[S]) -> Iterator[T]:
    """function(item) for every item, computed in threads and yielded in order.

    >>> list(in_threads(len, ["a", "bb"]))
    [1, 2]
    """
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(items), WINDOW):
            yield from pool.map(function, items[start : start + WINDOW])
