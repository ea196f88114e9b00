"""Where the sweeps on a folder stand: counts, rate, time left, failures. From the folder alone, without torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fgmix.errors import UserError
from fgmix.files import read_lines
from fgmix.runs.folder import RunFolder
from fgmix.sweeps.attempts import last_attempt
from fgmix.sweeps.durations import readable_duration
from fgmix.sweeps.folder import State, read_error, read_plans, state_of

ORDER: tuple[State, ...] = ("done", "diverged", "running", "failed", "waiting")
FINISHED: tuple[State, ...] = ("done", "diverged")


@dataclass(frozen=True)
class Status:
    """A look at a folder.

    Args:
        states: of every run that a sweep on the folder wanted, by name.
        worked: seconds that processes spent on each finished run.
        errors: why runs failed, by name.
        attempts: why the machine failed runs that wait, by name.
    """

    states: Mapping[str, State]
    worked: Mapping[str, float]
    errors: Mapping[str, str]
    attempts: Mapping[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> Counter[State]:
        return Counter(self.states.values())

    @property
    def left(self) -> int:
        """Runs that are being worked on or wait."""
        return self.counts["running"] + self.counts["waiting"]

    @property
    def seconds_a_run(self) -> float | None:
        """Mean time of the finished runs; None before the first, or where no time was noted."""
        return sum(self.worked.values()) / len(self.worked) if any(self.worked.values()) else None

    @property
    def seconds_left(self) -> float | None:
        """If the runs left take as long as the finished ones did, as many at once as now."""
        each = self.seconds_a_run
        return None if each is None else each * self.left / max(1, self.counts["running"])

    def lines(self) -> list[str]:
        """In words."""
        text = [", ".join(f"{self.counts[state]} {state}" for state in ORDER)]
        if self.left and self.seconds_a_run is not None and self.seconds_left is not None:
            at_once = max(1, self.counts["running"])
            rate = 3600 * at_once / self.seconds_a_run
            text.append(
                f"{readable_duration(self.seconds_a_run)} a run, {at_once} at once, {rate:.0f} an hour: about "
                f"{readable_duration(self.seconds_left)} left"
            )
        failed = [f"failed: {name}: {error}" for name, error in self.errors.items()]
        return [*text, *failed, *(f"waiting: {name}: {reason}" for name, reason in self.attempts.items())]


def read_status(out: Path, before: Status | None = None) -> Status:
    """Look at a folder; what a look before found finished is not read again.

    Args:
        out: the sweeps' folder.
        before: an earlier look at the same folder.
    """
    names = dict.fromkeys(name for plan in read_plans(out) for name in plan.runs)
    if not names:
        raise UserError(
            f"Expected a sweep's folder at {out}. Found no plan of one. Start one with `fgmix sweep --out {out}`."
        )
    states: dict[str, State] = {}
    worked: dict[str, float] = {}
    errors: dict[str, str] = {}
    for name in names:
        if before and before.states.get(name) in FINISHED:
            states[name], worked[name] = before.states[name], before.worked[name]
            continue
        try:
            states[name] = state_of(out / name)
            if states[name] in FINISHED:
                worked[name] = _worked(out / name)
            elif states[name] == "failed":
                errors[name] = read_error(out / name)
        except UserError as error:  # a file that is damaged: the others are shown all the same
            states[name], errors[name] = "failed", str(error)
    attempts = {name: last_attempt(out / name) for name, state in states.items() if state == "waiting"}
    return Status(states, worked, errors, {name: reason for name, reason in attempts.items() if reason})


def _worked(folder: Path) -> float:
    """Seconds of all sessions; none where a power cut left half a line."""
    noted = (line.get("seconds") for line in read_lines(RunFolder(folder).sessions))
    return sum(float(seconds) for seconds in noted if isinstance(seconds, int | float))
