"""Folders of results for tests of the report: records made by hand, figures, a plan."""

from __future__ import annotations

from pathlib import Path

from fgmix.figures.kinds import save_arrays
from fgmix.records.digests import seal_json
from fgmix.records.schema import RunRecord, to_plain
from fgmix.records.status import Plan, write_plan
from fgmix.records.store import RECORD
from figures import made
from results.made import finished

NASTY = "<img src=x onerror=alert(1)>&\"'</script>"


def records(trials: int = 4) -> list[RunRecord]:
    """Three methods on three domains; FGMix is 3 points better everywhere, Mixup as often better as worse."""
    gains = {"erm": (0.0, 0.0, 0.0), "mixup": (0.01, -0.01, 0.0), "fgmix": (0.03, 0.03, 0.03)}
    return [
        finished(test, 0.5 + 0.1 * place + 0.01 * trial + gain[place], algorithm=algorithm, trial=trial)
        for algorithm, gain in gains.items()
        for trial in range(trials)
        for place, test in enumerate("abc")
    ]


def write(folder: Path, found: list[RunRecord], *, waiting: int = 0) -> Path:
    """A sweep's folder with these runs finished and some that wait."""
    names = []
    for number, record in enumerate(found):
        names.append(f"run{number}")
        finish(folder / names[-1], record)
    wanted = (*names, *(f"waiting{number}" for number in range(waiting)))
    folder.mkdir(exist_ok=True)
    write_plan(folder, Plan(wanted, {}), {})
    return folder


def finish(folder: Path, record: RunRecord) -> None:
    """A run's folder, as it is when the run has finished."""
    folder.mkdir(parents=True)
    (folder / RECORD).write_bytes(seal_json(to_plain(record)))


def add_figures(folder: Path) -> None:
    """One of every kind."""
    (folder / "figures").mkdir()
    for name, arrays in made.every().items():
        save_arrays(folder / "figures" / f"{name}.npz", arrays)
