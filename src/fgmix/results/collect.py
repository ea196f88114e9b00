"""From folders to records: finished runs, grids, times per step, and sweeps of DomainBed. No torch."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fgmix.errors import UserError, reason_of
from fgmix.records.plans import Plan, read_plans
from fgmix.records.schema import RunRecord
from fgmix.records.store import RECORD, read_record, unpack
from fgmix.results.costs import Costs, read_costs
from fgmix.results.domainbed import from_domainbed as read_domainbed
from fgmix.results.grids import Grid, split_grids

SHOWN = 10  # notes about skipped files, at most


class NothingFinished(UserError):
    """A folder without a finished run: while a sweep runs, that may change."""


@dataclass(frozen=True)
class Results:
    """The results in a folder.

    Args:
        records: finished runs outside of grids.
        grids: finished runs of grids.
        costs: times per step, if they were measured.
        partial_trials: whether the overall table averages a trial over the domains it has, as DomainBed's does.
        notes: warnings from reading the folder.
    """

    records: Sequence[RunRecord]
    grids: Sequence[Grid] = ()
    costs: Costs | None = None
    partial_trials: bool = False
    notes: tuple[str, ...] = ()

    def groups(self) -> list[tuple[str, Sequence[RunRecord]]]:
        """Groups of records for model selection, each with its settings in a grid; empty text outside of grids."""
        return [("", self.records), *(group for grid in self.grids for group in grid.groups())]

    def all_records(self) -> list[RunRecord]:
        """Every finished run once."""
        found = [*self.records, *(record for grid in self.grids for record in grid.records)]
        return list({id(record): record for record in found}.values())


def collect(folder: Path, *, from_domainbed: bool = False, known: dict[Path, RunRecord] | None = None) -> Results:
    """The results in a folder and in the folders below it, in a packed file, or those of a DomainBed sweep.

    Args:
        folder: the folder; a file that `pack` wrote is accepted, too.
        from_domainbed: whether it is a sweep of DomainBed.
        known: records that were read before, by file; new ones are added to it.

    A record that cannot be read is left out, with a note that names it.
    """
    if from_domainbed:
        sweep = read_domainbed(folder)
        return Results(sweep.records, partial_trials=True, notes=sweep.notes)
    if os.path.lexists(folder) and not os.path.isdir(folder):
        return Results(unpack(folder))
    notes: list[str] = []
    known = {} if known is None else known
    with collector_paused():
        found = [_read_once(path, known, notes) for path in _record_files(folder, notes)]
    records = [record for record in found if record and record.spec.test_domains]  # a deployed model has no test domain
    costs = read_costs(folder)
    if not records and costs is None:
        advice = notes[0] if notes else f"Run `fgmix sweep --out {folder}` first."
        raise NothingFinished(f"Expected finished runs in {folder}. Found none. {advice}")
    sweeps = dict.fromkeys(record.folder.parent for record in records if record.folder)  # folders of the sweeps
    plain, grids = split_grids(records, {out: _plans(out, notes) for out in sweeps})
    return Results(plain, grids, costs, notes=_shortened(notes))


def _read_once(path: Path, known: dict[Path, RunRecord], notes: list[str]) -> RunRecord | None:
    record = known.get(path)
    if record is None:
        try:
            known[path] = record = read_record(path)
        except UserError as error:
            notes.append(f"Skipped a record. {error}")
    return record


def _plans(out: Path, notes: list[str]) -> list[Plan]:
    """The plans of the sweeps in a folder; if they cannot be read, the runs of grids are reported with the others."""
    try:
        return read_plans(out)
    except UserError as error:
        notes.append(f"Skipped the plans of {out}. {error}")
        return []


def _shortened(notes: list[str]) -> tuple[str, ...]:
    """The first few, and how many more there are."""
    more = len(notes) - SHOWN
    return (*notes[:SHOWN], *([f"{more} more were skipped."] if more > 0 else ()))


@contextmanager
def collector_paused() -> Iterator[None]:
    """Within the block no garbage is collected, which would take a third of the time for 20,000 records."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _record_files(folder: Path, notes: list[str]) -> list[Path]:
    """Every record file; subfolders of finished runs, which contain none, are not searched."""
    found, left = [], [folder]
    while left:
        place = left.pop()
        if os.path.lexists(file := place / RECORD):
            found.append(file)
            continue
        try:
            with os.scandir(place) as entries:
                inner = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            left += (place / name for name in sorted(inner, reverse=True))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            notes.append(
                f"Skipped the folder {place}. It cannot be opened ({reason_of(error)}). Check its permissions."
            )
    return found
