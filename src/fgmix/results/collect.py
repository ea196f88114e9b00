"""From folders to results: finished runs, grids, times per step, and sweeps of DomainBed. No torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from fgmix.errors import UserError, reason_of
from fgmix.records.plans import Plan, read_plans
from fgmix.records.schema import RunRecord
from fgmix.records.store import RECORD, read_record, unpack
from fgmix.results.codes import describe_codes
from fgmix.results.costs import Costs, read_costs
from fgmix.results.domainbed import from_domainbed as read_domainbed
from fgmix.results.grids import Grid, split_grids

MOST_NOTES = 10  # about skipped files


class NothingFinished(UserError):
    """A folder without a finished run: while a sweep runs, that may change."""


@dataclass(frozen=True)
class Results:
    """The results in a folder."""

    records: Sequence[RunRecord]  # finished runs outside of grids
    grids: Sequence[Grid] = ()  # finished runs of grids
    costs: Costs | None = None  # times per step, if they were measured
    # Whether the overall table averages a trial over the domains it has, as DomainBed's does.
    partial_trials: bool = False
    notes: tuple[str, ...] = ()  # warnings from reading the folder

    def groups(self) -> list[tuple[str, Sequence[RunRecord]]]:
        """Group the records for model selection, each with its settings in a grid; empty text outside of grids."""
        return [("", self.records), *(group for grid in self.grids for group in grid.groups())]

    def all_records(self) -> list[RunRecord]:
        """List every finished run once."""
        records = [*self.records, *(record for grid in self.grids for record in grid.records)]
        return list({id(record): record for record in records}.values())


def collect_all(folders: Sequence[Path], from_domainbed: Sequence[Path] = (), *, accept_code: bool = False) -> Results:
    """Collect the results of several folders; if there are two or more, every run is marked with its origin.

    Runs of different folders are never selected together. To pool folders, collect their parent folder.

    Args:
        folders: folders of runs.
        from_domainbed: folders of DomainBed sweeps.
        accept_code: as for `collect`.
    """
    places = [*folders, *from_domainbed]
    if not places:
        raise UserError("Expected a folder of runs, or --from-domainbed with a folder. Found neither. Name one.")
    parts = [
        collect(folder, from_domainbed=number >= len(folders), accept_code=accept_code)
        for number, folder in enumerate(places)
    ]
    if len(parts) == 1:
        return parts[0]
    parts = [_mark(part, name) for part, name in zip(parts, name_origins(folders, from_domainbed))]
    return Results(
        [record for part in parts for record in part.records],
        [grid for part in parts for grid in part.grids],
        next((part.costs for part in parts if part.costs is not None), None),
        partial_trials=all(part.partial_trials for part in parts),
        notes=tuple(note for part in parts for note in part.notes),
    )


def name_origins(folders: Sequence[Path], from_domainbed: Sequence[Path] = ()) -> list[str]:
    """Name each folder in tables: the end of its path, as long as needed to distinguish all folders.

    >>> name_origins([Path("/a/runs"), Path("/b/runs")], [Path("/db/sweep")])
    ['a/runs', 'b/runs', 'DomainBed: db/sweep']
    """
    parts = [folder.resolve().parts for folder in (*folders, *from_domainbed)]
    if len(set(parts)) < len(parts):
        raise UserError("Expected different folders. Found one of them twice. Name each once.")
    length = next(n for n in range(1, max(map(len, parts)) + 1) if len({each[-n:] for each in parts}) == len(parts))
    names = ["/".join(each[-length:]).replace("//", "/") for each in parts]
    return [f"DomainBed: {name}" if number >= len(folders) else name for number, name in enumerate(names)]


def _mark(results: Results, origin: str) -> Results:
    """Mark every run and note with its origin."""
    copies = {id(record): structs.replace(record, origin=origin) for record in results.all_records()}

    def mark(records: Sequence[RunRecord]) -> tuple[RunRecord, ...]:
        return tuple(copies[id(record)] for record in records)

    grids = [replace(grid, records=mark(grid.records)) for grid in results.grids]
    notes = tuple(f"{origin}: {note}" for note in results.notes)
    return replace(results, records=mark(results.records), grids=grids, notes=notes)


def collect(
    folder: Path,
    *,
    from_domainbed: bool = False,
    known: dict[Path, RunRecord] | None = None,
    accept_code: bool = False,
) -> Results:
    """Collect the results in a folder and those below it, in a packed file, or of a DomainBed sweep.

    Args:
        folder: the folder; a file that `pack` wrote is accepted, too.
        from_domainbed: whether it is a sweep of DomainBed.
        known: records that were read before, by file; new ones are added to it.
        accept_code: treat runs of different code of a method as equal.

    A record that cannot be read is left out, with a note that names it.
    """
    if from_domainbed:
        sweep = read_domainbed(folder)
        return Results(sweep.records, partial_trials=True, notes=sweep.notes)
    if os.path.lexists(folder) and not os.path.isdir(folder):
        records = _forget_codes(unpack(folder)) if accept_code else unpack(folder)
        return Results(records, notes=tuple(describe_codes(records)))
    notes: list[str] = []
    known = {} if known is None else known
    files = [_read_once(path, known, notes) for path in _find_records(folder, notes)]
    records = [record for record in files if record and record.spec.test_domains]  # a deployed model has no test domain
    if accept_code:
        records = _forget_codes(records)
    costs = read_costs(folder)
    if not records and costs is None:
        advice = notes[0] if notes else f"Run `fgmix sweep --out {folder}` first."
        raise NothingFinished(f"Expected finished runs in {folder}. Found none. {advice}")
    sweeps = dict.fromkeys(record.folder.parent for record in records if record.folder)  # folders of the sweeps
    plain, grids = split_grids(records, {out: _read_plans(out, notes) for out in sweeps})
    if len(notes) > MOST_NOTES:
        notes[MOST_NOTES:] = [f"{len(notes) - MOST_NOTES} more were skipped."]
    return Results(plain, grids, costs, notes=(*notes, *describe_codes(records)))


def _forget_codes(records: Sequence[RunRecord]) -> list[RunRecord]:
    return [structs.replace(record, code="") for record in records]


def _read_once(path: Path, known: dict[Path, RunRecord], notes: list[str]) -> RunRecord | None:
    if path not in known:
        try:
            known[path] = read_record(path)
        except UserError as error:
            notes.append(f"Skipped a record. {error}")
    return known.get(path)


def _read_plans(out: Path, notes: list[str]) -> list[Plan]:
    """Read the plans in a folder; if they cannot be read, the runs of grids are reported with the others."""
    try:
        return read_plans(out)
    except UserError as error:
        notes.append(f"Skipped the plans of {out}. {error}")
        return []


def _find_records(folder: Path, notes: list[str]) -> list[Path]:
    """Find every record file; subfolders of finished runs, which contain none, are not searched."""
    files, left = [], [folder]
    while left:
        place = left.pop()
        if os.path.lexists(file := place / RECORD):
            files.append(file)
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
    return files
