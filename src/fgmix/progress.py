"""Progress of long work: a live bar on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")


class Progress:
    """Counts work towards `total` and shows it on standard error.

    Args:
        description: name of the work.
        total: number of units of work.
        done: how many were done before (by a run that is resumed).
        show: False prints nothing.

    Example:
        >>> with Progress("decode", total=2, show=False) as progress:
        ...     for _ in range(2):
        ...         progress.advance(note="loss 0.3")
        >>> progress.done
        2
    """

    PLAIN_LINES = 10  # printed in total without a terminal

    def __init__(self, description: str, total: int, *, done: int = 0, show: bool = True) -> None:
        self.description = description
        self.total = max(total, 1)
        self.done = done
        self.note = ""
        self._start_done = done
        self._started = time.monotonic()
        self._live = None
        self._show = show
        if show and sys.stderr.isatty():
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def advance(self, n: int = 1, note: str | None = None) -> None:
        """Count `n` more units done; `note` stays beside the bar until the next one."""
        before, self.done = self.done, self.done + n
        if note is not None:
            self.note = note
        if self._live:
            self._live.update(self._task, completed=self.done, note=self.note, rate=self._rate_text())
        elif self._show and self._line(before) != self._line(self.done):
            print(
                f"{self.description}: {self.done}/{self.total} {self._rate_text()} {self.note}".rstrip(),
                file=sys.stderr,
            )

    def skip(self, n: int) -> None:
        """Count `n` units that were done before, which are left out of the rate."""
        self.done += n
        self._start_done += n

    def say(self, text: str) -> None:
        """Show a status message: beside the bar on a terminal, as a line elsewhere."""
        if self._live:
            self._live.update(self._task, completed=self.done, note=text)
        elif self._show:
            print(f"{self.description}: {text}", file=sys.stderr)

    def part(self, description: str, *, done: int = 0) -> Part:
        """A part of the work, shown by this bar; `done` of its units were done before.

        >>> with Progress("fit", total=4, show=False) as whole, whole.part("art", done=1) as part:
        ...     part.advance(2)
        >>> whole.done
        3
        """
        return Part(self, description, done)

    def _line(self, done: int) -> int:
        return done * self.PLAIN_LINES // self.total

    def _rate_text(self) -> str:
        elapsed = time.monotonic() - self._started
        rate = (self.done - self._start_done) / elapsed if elapsed > 0 else 0.0
        if rate <= 0:
            return ""
        left = (self.total - self.done) / rate
        return f"{rate:.1f}/s, {left:.0f} s left" if not self._live else f"{rate:.1f}/s"


class Part:
    """A part of the work, counted and shown by the bar of the whole.

    Args:
        whole: that bar.
        description: name of the part.
        done: how many of its units were done before.
    """

    def __init__(self, whole: Progress, description: str, done: int = 0) -> None:
        self.whole, self.description = whole, description
        whole.skip(done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def advance(self, n: int = 1, note: str | None = None) -> None:
        """Count `n` more units done."""
        self.whole.advance(n, None if note is None else f"{self.description}: {note}")

    def say(self, text: str) -> None:
        """Show a status message."""
        self.whole.say(f"{self.description}: {text}")


def bar_for(show: bool | Progress, description: str, total: int, *, done: int = 0) -> Progress | Part:
    """A progress bar: a part of `show` if that is the bar of a larger piece of work, else its own."""
    if isinstance(show, Progress):
        return show.part(description, done=done)
    return Progress(description, total, done=done, show=show)


def track(things: Sequence[T], description: str, *, show: bool = True) -> Iterator[T]:
    """Iterate over `things` with a progress bar.

    >>> list(track("ab", "letters", show=False))
    ['a', 'b']
    """
    with Progress(description, len(things), show=show) as bar:
        for thing in things:
            yield thing
            bar.advance()
