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
        description: what is going on.
        total: how many units the work has.
        done: how many were done before (a resumed run).
        show: False keeps it silent.

    Example:
        >>> with Progress("decode", total=2, show=False) as progress:
        ...     for _ in range(2):
        ...         progress.advance(note="loss 0.3")
        >>> progress.done
        2
    """

    PLAIN_LINES = 10  # how many lines the whole work prints where there is no terminal

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

    def _line(self, done: int) -> int:
        return done * self.PLAIN_LINES // self.total

    def _rate_text(self) -> str:
        elapsed = time.monotonic() - self._started
        rate = (self.done - self._start_done) / elapsed if elapsed > 0 else 0.0
        if rate <= 0:
            return ""
        left = (self.total - self.done) / rate
        return f"{rate:.1f}/s, {left:.0f} s left" if not self._live else f"{rate:.1f}/s"


def track(things: Sequence[T], description: str, *, show: bool = True) -> Iterator[T]:
    """The things one by one, with a bar that counts them.

    >>> list(track("ab", "letters", show=False))
    ['a', 'b']
    """
    with Progress(description, len(things), show=show) as bar:
        for thing in things:
            yield thing
            bar.advance()
