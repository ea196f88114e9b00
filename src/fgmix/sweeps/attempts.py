"""Failures of machines, as distinct from failures of runs.

A full disk, a lost mount or a lost GPU says nothing about a run: the attempt is noted in the run's folder, the run
waits, and the worker gets another run. If it finishes that one, the machine works, and the attempt counts against the
first run, which fails after three of them. If the machine fails again, the worker gets no more runs.
"""

from __future__ import annotations

import json
import os
import platform
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fgmix.errors import MachineError
from fgmix.records.files import at_once, make_folder, read_lines
from fgmix.records.plans import Outcome, failed
from fgmix.records.store import RunFolder

ATTEMPTS = 3  # on workers that finished another run, before a run counts as failed
IN_A_ROW = 2  # runs interrupted by the machine, after which a worker gets no more


@dataclass
class Health:
    """Whether the machine of a worker works.

    Args:
        out: the sweep's folder.
        unfinished: runs during which the machine failed since the worker last finished one.
        reason: of the last failure.
    """

    out: Path
    unfinished: list[str] = field(default_factory=list)
    reason: str = ""

    @property
    def is_ill(self) -> bool:
        """Whether the worker should get no more runs."""
        return len(self.unfinished) >= IN_A_ROW

    def note(self, outcome: Outcome) -> None:
        """Update from the outcome of the worker's last run."""
        if outcome.status == "waiting":
            self.unfinished.append(outcome.name)
            self.reason = outcome.error
        elif outcome.status == "done":
            for name in self.unfinished:
                _count_against(self.out / name)
            self.unfinished.clear()


def put_off(folder: Path, error: MachineError, device: str) -> Outcome:
    """Note that the machine failed during a run, which waits for another attempt."""
    place = {"host": platform.node(), "device": device, "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}
    _append(folder, {**place, "at": time.time(), "reason": str(error)})
    return Outcome(folder.name, "waiting", str(error))


def last_attempt(folder: Path) -> str:
    """Why and where the machine last failed during a run; empty if it never did."""
    noted = [line for line in _read(folder) if "reason" in line]
    return f"{noted[-1]['reason']} (attempt {len(noted)}, on {noted[-1].get('host')})" if noted else ""


def forget(folder: Path) -> None:
    """Delete a run's error and attempts, so that it can be run again."""
    run = RunFolder(folder)
    for file in (run.error, run.attempts):
        file.unlink(missing_ok=True)


def _count_against(folder: Path) -> None:
    _append(folder, {"host": platform.node(), "at": time.time(), "counted": True})
    if sum(bool(line.get("counted")) for line in _read(folder)) >= ATTEMPTS:
        failed(folder, f"{last_attempt(folder)}. It failed {ATTEMPTS} times on workers that finished other runs.")


def _append(folder: Path, line: dict[str, Any]) -> None:
    with suppress(OSError, MachineError):  # the disk may be what failed
        file = RunFolder(make_folder(folder)).attempts
        with open(file, "a", encoding="utf-8", errors="backslashreplace", opener=at_once) as opened:
            opened.write(json.dumps(line) + "\n")


def _read(folder: Path) -> list[dict[str, Any]]:
    return read_lines(RunFolder(folder).attempts)
