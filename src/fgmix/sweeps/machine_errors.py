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
from fgmix.records.plans import Outcome, describe_last_attempt, record_failure
from fgmix.records.store import RunFolder

MAX_ATTEMPTS = 3  # on workers that finished another run, before a run counts as failed
MAX_IN_A_ROW = 2  # runs interrupted by the machine, after which a worker gets no more


@dataclass
class MachineHealth:
    """Whether the machine of a worker works.

    Args:
        out: the sweep's folder.
        interrupted: runs during which the machine failed since the worker last finished one.
        reason: of the last failure.
    """

    out: Path
    interrupted: list[str] = field(default_factory=list)
    reason: str = ""

    @property
    def is_broken(self) -> bool:
        """Whether the worker should get no more runs."""
        return len(self.interrupted) >= MAX_IN_A_ROW

    def update(self, outcome: Outcome) -> None:
        """Update from the outcome of the worker's last run."""
        if outcome.status == "waiting":
            self.interrupted.append(outcome.name)
            self.reason = outcome.error
        elif outcome.status == "done":
            for name in self.interrupted:
                _count_against(self.out / name)
            self.interrupted.clear()


def postpone(folder: Path, error: MachineError, device: str) -> Outcome:
    """Note that the machine failed during a run, which waits for another attempt."""
    place = {"host": platform.node(), "device": device, "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}
    _append(folder, {**place, "at": time.time(), "reason": str(error)})
    return Outcome(folder.name, "waiting", str(error))


def allow_retry(folder: Path) -> None:
    """Delete a run's error and attempts, so that it can be run again."""
    run = RunFolder(folder)
    for file in (run.error, run.attempts):
        file.unlink(missing_ok=True)


def _count_against(folder: Path) -> None:
    _append(folder, {"host": platform.node(), "at": time.time(), "counted": True})
    if sum(bool(line.get("counted")) for line in read_lines(RunFolder(folder).attempts)) >= MAX_ATTEMPTS:
        last = describe_last_attempt(folder)
        record_failure(folder, f"{last}. It failed {MAX_ATTEMPTS} times on workers that finished other runs.")


def _append(folder: Path, line: dict[str, Any]) -> None:
    with suppress(OSError, MachineError):  # the disk may be what failed
        path = RunFolder(make_folder(folder)).attempts
        with open(path, "a", encoding="utf-8", errors="backslashreplace", opener=at_once) as file:
            file.write(json.dumps(line) + "\n")
