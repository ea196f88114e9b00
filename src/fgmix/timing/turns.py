"""Two ways of doing the same work, timed by turns in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from fgmix.errors import bad_value

Way = Callable[[int], object]  # does the work of the round with this number


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
        """How many times faster ours is: the median of the rounds' ratios."""
        return statistics.median(self._ratios)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The lower and the upper quartile of the rounds' ratios."""
        low, _, high = statistics.quantiles(self._ratios, n=4)
        return low, high

    @property
    def _ratios(self) -> list[float]:
        # Neighbours in time: a machine that slows down for a while slows both.
        return [theirs / ours for ours, theirs in zip(self.ours, self.theirs)]


def by_turns(ours: Way, theirs: Way, rounds: int, clock: Callable[[], float] | None = None) -> Turns:
    """Time both ways `rounds` times; who goes first changes from round to round.

    Args:
        ours: our way.
        theirs: the other.
        rounds: repeats.
        clock: seconds; `time.perf_counter` unless given. `time.process_time` counts those that cores compute for this
            process, which other processes hardly change.
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


def check_rounds(rounds: int) -> None:
    """Refuse what has no quartiles before anything is prepared for it."""
    if rounds < 3:
        raise bad_value("rounds", "at least 3, which quartiles need", rounds)
