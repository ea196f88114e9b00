"""Progress of long work: a live bar on a terminal, a few plain lines elsewhere; and durations as text."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Self, TypeVar

from fgmix.errors import UserError
from fgmix.escape import print_lines

T = TypeVar("T")
PLAIN_LINES = 10  # printed in total without a terminal
SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


class Progress:
    """Counts work towards `total` and shows it on standard error.

    Args:
        description: name of the work.
        total: number of units of work.
        done: how many were done before (by a run that is resumed).
        show: False prints nothing; a bar of a larger piece of work shows this one as a part of it.

    Example:
        >>> with Progress("fit", total=4, show=False) as whole, Progress("art", total=3, done=1, show=whole) as part:
        ...     part.advance(2, note="loss 0.3")
        >>> whole.done
        3
    """

    def __init__(self, description: str, total: int, *, done: int = 0, show: bool | Progress = True) -> None:
        self.description = description
        self.total = max(total, 1)
        self.done = done
        self.note = ""
        self._start_done = done
        self._started = time.monotonic()
        self._live = None
        self._whole = show if isinstance(show, Progress) else None
        self._show = show
        if self._whole:
            self._whole.skip(done)
        elif show and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._live = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[rate]} {task.fields[note]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._live.add_task(description, total=self.total, completed=done, note="", rate="")

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def advance(self, n: int = 1, note: str | None = None) -> None:
        """Count `n` more units done; `note` stays beside the bar until the next one."""
        before, self.done = self.done, self.done + n
        self.note = self.note if note is None else note
        elapsed = time.monotonic() - self._started
        per_second = (self.done - self._start_done) / elapsed if elapsed > 0 else 0.0
        rate = f"{per_second:.1f}/s" if per_second > 0 else ""
        if self._whole:
            self._whole.advance(n, None if note is None else f"{self.description}: {note}")
        elif self._live:
            self._live.update(self._task, completed=self.done, note=self.note, rate=rate)
        elif self._show and before * PLAIN_LINES // self.total != self.done * PLAIN_LINES // self.total:
            left = f", {(self.total - self.done) / per_second:.0f} s left" if rate else ""
            text = f"{self.description}: {self.done}/{self.total} {rate}{left} {self.note}".rstrip()
            print_lines([text], sys.stderr)

    def skip(self, n: int) -> None:
        """Count `n` units that were done before, which are left out of the rate."""
        self.done += n
        self._start_done += n

    def say(self, text: str) -> None:
        """Show a status message: beside the bar on a terminal, as a line elsewhere."""
        if self._whole:
            self._whole.say(f"{self.description}: {text}")
        elif self._live:
            self._live.update(self._task, completed=self.done, note=text)
        elif self._show:
            print_lines([f"{self.description}: {text}"], sys.stderr)


def track(things: Sequence[T], description: str, *, show: bool = True) -> Iterator[T]:
    """Iterate over `things` with a progress bar.

    >>> list(track("ab", "letters", show=False))
    ['a', 'b']
    """
    with Progress(description, len(things), show=show) as bar:
        for thing in things:
            yield thing
            bar.advance()


def parse_duration(text: str) -> float:
    """Parse a text to seconds, such as "8h", "90m", "1.5d", "40s".

    >>> parse_duration("1h30m")
    5400.0
    """
    plain = re.sub(r"\s", "", text.lower())
    parts = re.findall(r"(\d+(?:\.\d+)?)([dhms])", plain)
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
