"""Requests to stop: SIGTERM and SIGUSR1, which clusters send before they end a job.

A run that is requested to stop finishes its step, writes a checkpoint and raises `Stopped`. An evaluation is aborted:
it may take longer than the cluster waits, and the resumed run starts with it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGUSR1") if hasattr(signal, name))


class Stopped(BaseException):
    """A run wrote a checkpoint and ended on request; rerunning it resumes.

    Neither an error of the run nor a mistake of the user: like KeyboardInterrupt, it is not caught by error handlers.
    """


@dataclass
class Stop:
    """Whether a run is requested to stop, and by what."""

    reason: str | None = None  # None until there is a request
    _at_once: bool = False  # whether a request raises an error

    def request(self, reason: str) -> None:
        """Request a stop; within `at_once` this raises `Stopped`."""
        self.reason = reason
        if self._at_once:
            raise Stopped

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Let a request end the block by raising `Stopped`; it should not change anything stored in a checkpoint."""
        self._at_once = True
        try:
            if self.reason:
                raise Stopped
            yield
        finally:
            self._at_once = False


_listening: list[Stop] = []  # the one that signals set, within `stop_on_signal`


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Let the signals request a stop within the block; nested blocks give the same `Stop`.

    A job with many runs opens the outer block, and checks between two runs whether to start another. Signals for which
    the program has a handler are left to it. Outside the main thread, where Python allows no handlers, none is handled.

    >>> with stop_on_signal() as job, stop_on_signal() as run:
    ...     run is job, job.reason
    (True, None)
    """
    if _listening or threading.current_thread() is not threading.main_thread():
        yield _listening[0] if _listening else Stop()
        return
    stop = Stop()

    def ask(number: int, _: FrameType | None) -> None:
        stop.request(signal.Signals(number).name)

    free = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    _listening.append(stop)
    for number in free:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number in free:
            signal.signal(number, signal.SIG_DFL)
        _listening.clear()
