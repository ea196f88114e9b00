"""Runs that fail, told from machines that do.

A full disk, a lost mount or a GPU that is gone says nothing about a run: the attempt is noted in the run's folder, the
run stays waiting, and the worker is given another run. If it finishes that one, the machine is well, and the attempt
counts against the run: three of them fail it. If the machine fails it again, the worker takes no more runs.
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
from fgmix.files import at_once, make_folder, read_lines
from fgmix.runs.folder import RunFolder
from fgmix.sweeps.folder import Outcome, failed

ATTEMPTS = 3  # on workers that finished another run, before a run counts as failed
IN_A_ROW = 2  # runs that the machine fails before a worker takes no more


@dataclass
class Health:
    """How a worker fares.

    Args:
        out: the sweep's folder.
        unfinished: runs that the machine has failed since the worker last finished one.
        reason: how it failed the last of them.
    """

    out: Path
    unfinished: list[str] = field(default_factory=list)
    reason: str = ""

    @property
    def is_ill(self) -> bool:
        """Whether the worker should take no more runs."""
        return len(self.unfinished) >= IN_A_ROW

    def note(self, outcome: Outcome) -> None:
        """Draw the conclusions from what became of the worker's last run."""
        if outcome.status == "waiting":
            self.unfinished.append(outcome.name)
            self.reason = outcome.error
        elif outcome.status == "done":
            for name in self.unfinished:
                _count_against(self.out / name)
            self.unfinished.clear()


def put_off(folder: Path, error: MachineError, device: str) -> Outcome:
    """Note that the machine failed a run, which waits for another attempt."""
    place = {"host": platform.node(), "device": device, "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}
    _append(folder, {**place, "at": time.time(), "reason": str(error)})
    return Outcome(folder.name, "waiting", str(error))


def last_attempt(folder: Path) -> str:
    """When the machine failed a run last: where and why; empty if it never did."""
    noted = [line for line in _read(folder) if "reason" in line]
    return f"{noted[-1]['reason']} (attempt {len(noted)}, on {noted[-1].get('host')})" if noted else ""


def forget(folder: Path) -> None:
    """Give a run a new start: neither its failure nor its attempts count any more."""
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
