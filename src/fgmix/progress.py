"""Progress of long work: a live bar on a terminal, a line every 30 seconds elsewhere; and durations as text."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Self, TypeVar

from fgmix.errors import UserError
from fgmix.terminal import print_lines

T = TypeVar("T")
PLAIN_SECONDS = 30  # at most between two lines of one piece of work, without a terminal
SECONDS = {"d": 86400, "h": 3600, "min": 60, "m": 60, "s": 1}


class Progress:
    """Counts work towards `total` and shows it on standard error.

    On a terminal it is a bar with the rate and the time left. Elsewhere it is one line after the first
    second, one every 30 seconds from then on, and one at the end.

    Args:
        description: name of the work.
        total: number of units of work.
        unit: what is counted, such as "steps".
        done: how many were done before (by a run that is resumed).
        show: False prints nothing; a bar of a larger piece of work shows this one as a part of it.
        counts: whether its units are those of the larger piece; one that only prepares it is named and not counted.

    Example:
        >>> with Progress("fit", total=4, show=False) as whole, Progress("art", total=3, done=1, show=whole) as part:
        ...     part.advance(2, note="loss 0.3")
        >>> whole.done
        3
    """

    def __init__(
        self,
        description: str,
        total: int,
        unit: str = "",
        *,
        done: int = 0,
        show: bool | Progress = True,
        counts: bool = True,
    ) -> None:
        self.description = description
        self.total = max(total, 1)
        self.unit = unit
        self.done: float = done
        self.ahead = 0.0  # units of work in progress, which count for the bar and the time left alone
        self.note = ""
        self.counts = counts
        self._start_done: float = done
        self._first: tuple[float, float] | None = None  # when work was first seen, and how much: what precedes prepares
        self._started = self._printed = time.monotonic()
        self._pause = 1
        self._live = None
        self._whole = show if isinstance(show, Progress) else None
        self._show = show
        if self._whole is not None:
            self._whole.begin_part(self)
        elif show and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bar
            from rich.table import Column

            name = TextColumn("{task.description}", table_column=Column(no_wrap=True, min_width=len(description)))
            columns = name, BarColumn(bar_width=24), TextColumn("{task.fields[state]}")
            self._live = Bar(*columns, console=Console(stderr=True))
            self._task = self._live.add_task(description, total=self.total, completed=done, state=self._describe())

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._live:
            self._live.stop()
        elif self._show and self._whole is None and kind is None:
            took = format_duration(time.monotonic() - self._started)
            print_lines([f"{self.description}: {self._count()} in {took}"], sys.stderr)

    def __bool__(self) -> bool:
        """Whether it is shown."""
        return bool(self._show)

    def advance(self, n: float = 1, note: str | None = None) -> None:
        """Count `n` more units done; `note` stays beside the bar, or in the next line, until the next one."""
        self.done += n
        self.ahead = max(0.0, self.ahead - n)  # a unit that is done is no longer in progress
        if self._whole is not None:
            self._whole.advance_part(self, n, note)
        else:
            self.refresh(note)

    def refresh(self, note: str | None = None) -> None:
        """Show the present state, with a new note if one is given."""
        self.note = self.note if note is None else note
        if self._first is None and self.done + self.ahead > self._start_done:
            self._first = time.monotonic(), self.done + self.ahead
        if self._live:
            self._live.update(self._task, completed=self.done + self.ahead, state=self._describe())
        elif self._show and time.monotonic() - self._printed >= self._pause:
            self._printed = time.monotonic()
            self._pause = PLAIN_SECONDS
            print_lines([f"{self.description}: {self._describe()}"], sys.stderr)

    def begin_part(self, part: Progress) -> None:
        """Count what a part of this work had done before it began."""
        self.skip(part.done if part.counts else 0)

    def advance_part(self, part: Progress, n: float, note: str | None) -> None:
        """Count what a part has done now; a preparation is shown beside the bar instead."""
        if part.counts:
            self.advance(n, None if note is None else f"{part.description}: {note}")
        else:
            self.refresh(f"{part.description}: {part._count()}")

    def skip(self, n: float) -> None:
        """Count `n` units that were done before, which are left out of the rate."""
        self.done += n
        self._start_done += n
        self._first = None

    def _describe(self) -> str:
        """Write the count, the rate, the time left and the note."""
        done = self.done + self.ahead
        rate = self._measure_rate(done)
        left = f"{format_duration((self.total - done) / rate)} left" if rate > 0 else ""
        shown = f"{rate:.1f} {self.unit}/s" if rate >= 1 and self.unit else ""  # slower: the time left says more
        return " · ".join(filter(None, (self._count(), shown, left, self.note)))

    def _measure_rate(self, done: float) -> float:
        """Measure units per second since work was first seen; since the start if that was a whole unit; else 0."""
        now = time.monotonic()
        began, before = self._first or (now, done)
        if done <= before and self.done > self._start_done:
            began, before = self._started, self._start_done
        return max(0.0, (done - before) / (now - began)) if now > began else 0.0

    def _count(self) -> str:
        return f"{int(self.done):,}/{self.total:,} {self.unit}".rstrip()


def track(things: Sequence[T], description: str, unit: str = "", *, show: bool = True) -> Iterator[T]:
    """Iterate over `things` with a progress bar.

    >>> list(track("ab", "letters", show=False))
    ['a', 'b']
    """
    with Progress(description, len(things), unit, show=show) as bar:
        for thing in things:
            yield thing
            bar.advance()


def parse_duration(text: str) -> float:
    """Parse a text to seconds, such as "8h", "90m", "10min", "1.5d", "40s".

    >>> parse_duration("1h30m")
    5400.0
    """
    plain = re.sub(r"\s", "", text.lower())
    parts = re.findall(r"(\d+(?:\.\d+)?)(d|h|min|m|s)", plain)
    if not parts or "".join(number + unit for number, unit in parts) != plain:
        raise UserError(f"Expected a duration such as 8h, 90m or 1h30m. Found {text!r}.")
    return sum(float(number) * SECONDS[unit] for number, unit in parts)


def format_duration(seconds: float) -> str:
    """Format a duration as text.

    >>> format_duration(5400), format_duration(42)
    ('1 h 30 min', '42 s')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours / 24:.1f} days"
