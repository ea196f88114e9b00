"""Workers that die, started as processes of their own; they train nothing and import no torch."""

from __future__ import annotations

import os
import signal
from multiprocessing.connection import Connection

from fgmix.records.plans import Outcome


def dies_at_mr(pipe: Connection, out: str, device: str, threads: int, workers: int) -> None:  # noqa: ARG001
    """Ends every run at once, but is killed by those that hold out `mr`."""
    while True:
        try:
            name = pipe.recv().name
        except EOFError:
            return
        if "-mr-" in name:
            os.kill(os.getpid(), signal.SIGKILL)
        pipe.send(Outcome(name, "done"))


def dies_after_each(pipe: Connection, out: str, device: str, threads: int, workers: int) -> None:  # noqa: ARG001
    """Ends one run and is killed before it can take the next; knows that it is one of two, which share the cores."""
    name = pipe.recv().name
    pipe.send(Outcome(name, "done" if workers == 2 else "failed"))
    os.kill(os.getpid(), signal.SIGKILL)
