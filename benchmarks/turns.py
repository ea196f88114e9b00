"""Time two ways of doing the same work alternately in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.steps import check_rounds

Way = Callable[[int], object]  # does the work of a round, by its number


@dataclass(frozen=True)
class Turns:
    """Seconds of both ways in each round.

    >>> turns = Turns(ours=(1.0, 2.0, 1.0), theirs=(3.0, 8.0, 5.0))
    >>> turns.ratio, turns.quartiles
    (4.0, (3.0, 5.0))
    """

    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """How many times faster ours is: median over rounds."""
        return statistics.median(self._ratios)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Lower and upper quartile of the ratio over rounds."""
        low, _, high = statistics.quantiles(self._ratios, n=4)
        return low, high

    @property
    def _ratios(self) -> list[float]:
        # By round: a temporary slowdown of the machine affects both.
        return [theirs / ours for ours, theirs in zip(self.ours, self.theirs)]


def by_turns(ours: Way, theirs: Way, rounds: int, clock: Callable[[], float] | None = None) -> Turns:
    """Time both ways `rounds` times; the order alternates.

    Args:
        ours: our way.
        theirs: the other way.
        rounds: number of rounds.
        clock: in seconds; None for `time.perf_counter`. `time.process_time` is the CPU time of this process, which
            other processes hardly change.
    """
    clock = clock or time.perf_counter
    check_rounds(rounds)
    sides: list[tuple[Way, list[float]]] = [(ours, []), (theirs, [])]
    for number in range(rounds):
        for way, times in sides if number % 2 == 0 else reversed(sides):
            started = clock()
            way(number)
            times.append(clock() - started)
    (_, our_times), (_, their_times) = sides
    return Turns(tuple(our_times), tuple(their_times))
