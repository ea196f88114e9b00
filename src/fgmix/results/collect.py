"""From folders to results: finished runs, grids, times per step, and sweeps of DomainBed. No torch."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from fgmix.errors import UserError, reason_of
from fgmix.records.plans import Plan, read_plans
from fgmix.records.schema import RunRecord
from fgmix.records.store import RECORD, read_record, unpack
from fgmix.results import domainbed
from fgmix.results.codes import describe_codes
from fgmix.results.costs import Costs, read_costs
from fgmix.results.filters import Filter
from fgmix.results.grids import Grid, split_grids
from fgmix.results.selection import find_test_domains
from fgmix.results.settings import mark_settings

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
    # Test domains of each dataset, those planned and not yet finished among them; else those that runs hold out.
    test_domains: Mapping[str, Collection[str]] = field(default_factory=dict)

    def groups(self) -> list[tuple[str, Sequence[RunRecord]]]:
        """Group the records for model selection, each with its settings in a grid; empty text outside of grids."""
        return [("", self.records), *(group for grid in self.grids for group in grid.groups())]

    def all_records(self) -> list[RunRecord]:
        """List every finished run once."""
        records = [*self.records, *(record for grid in self.grids for record in grid.records)]
        return list({id(record): record for record in records}.values())


def collect_all(
    folders: Sequence[Path],
    from_domainbed: Sequence[Path] = (),
    only: Filter = Filter(),  # noqa: B008 (frozen)
    *,
    accept_code: bool = False,
) -> Results:
    """Collect the results of several folders; if there are two or more, every run is marked with its origin.

    Runs of different folders are never selected together. To pool folders, collect their parent folder.

    Args:
        folders: folders of runs.
        from_domainbed: folders of DomainBed sweeps.
        only: which runs to keep.
        accept_code: as for `collect`.
    """
    places = [*folders, *from_domainbed]
    if not places:
        raise UserError("Expected a folder of runs, or --from-domainbed with a folder. Found neither. Name one.")
    parts = [_read_domainbed(f) if number >= len(folders) else _read_folder(f, {}) for number, f in enumerate(places)]
    if len(parts) == 1:
        return _prepare(parts[0], only, accept_code)
    parts = [_mark(part, name) for part, name in zip(parts, name_origins(folders, from_domainbed))]
    joined = Results(
        [record for part in parts for record in part.records],
        [grid for part in parts for grid in part.grids],
        next((part.costs for part in parts if part.costs is not None), None),
        partial_trials=all(part.partial_trials for part in parts),
        notes=tuple(note for part in parts for note in part.notes),
        test_domains=_join_test_domains(parts),
    )
    return _prepare(joined, only, accept_code)


def _prepare(results: Results, only: Filter, accept_code: bool) -> Results:
    """Keep the runs of a filter, and mark runs of one row whose settings differ: they are rows of their own."""
    kept = only.apply(_change(results, code="") if accept_code else results)
    grids = [replace(grid, records=tuple(mark_settings(grid.records, grid.values))) for grid in kept.grids]
    notes = (*kept.notes, *describe_codes(kept.all_records()))
    return replace(kept, records=mark_settings(kept.records), grids=grids, notes=notes)


def _join_test_domains(parts: Sequence[Results]) -> dict[str, set[str]]:
    joined: dict[str, set[str]] = defaultdict(set)
    for part in parts:
        for dataset, names in part.test_domains.items():
            joined[dataset].update(names)
    return joined


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
    return replace(_change(results, origin=origin), notes=tuple(f"{origin}: {note}" for note in results.notes))


def _change(results: Results, **fields: str) -> Results:
    """Change fields of every record."""
    copies = {id(record): structs.replace(record, **fields) for record in results.all_records()}

    def change(records: Sequence[RunRecord]) -> tuple[RunRecord, ...]:
        return tuple(copies[id(record)] for record in records)

    grids = [replace(grid, records=change(grid.records)) for grid in results.grids]
    return replace(results, records=change(results.records), grids=grids)


def collect(
    folder: Path,
    *,
    from_domainbed: bool = False,
    known: dict[Path, RunRecord] | None = None,
    only: Filter = Filter(),  # noqa: B008 (frozen)
    accept_code: bool = False,
) -> Results:
    """Collect the results in a folder and those below it, in a packed file, or of a DomainBed sweep.

    Args:
        folder: the folder; a file that `pack` wrote is accepted, too.
        from_domainbed: whether it is a sweep of DomainBed.
        known: records that were read before, by file; new ones are added to it.
        only: which runs to keep.
        accept_code: treat runs of different code of a method as equal.

    A record that cannot be read is left out, with a note that names it.
    """
    read = _read_domainbed(folder) if from_domainbed else _read_folder(folder, {} if known is None else known)
    return _prepare(read, only, accept_code)


def _read_domainbed(folder: Path) -> Results:
    sweep = domainbed.from_domainbed(folder)
    held_out = find_test_domains(sweep.records)
    return Results(sweep.records, partial_trials=True, notes=sweep.notes, test_domains=held_out)


def _read_folder(folder: Path, known: dict[Path, RunRecord]) -> Results:
    if os.path.lexists(folder) and not os.path.isdir(folder):
        records = unpack(folder)
        return Results(records, test_domains=find_test_domains(records))
    notes: list[str] = []
    files = [_read_once(path, known, notes) for path in _find_records(folder, notes)]
    records = [record for record in files if record and record.spec.test_domains]  # a deployed model has no test domain
    costs = read_costs(folder)
    if not records and costs is None:
        advice = notes[0] if notes else f"Run `fgmix sweep --out {folder}` first."
        raise NothingFinished(f"Expected finished runs in {folder}. Found none. {advice}")
    sweeps = dict.fromkeys(record.folder.parent for record in records if record.folder)  # folders of the sweeps
    plans = {out: _read_plans(out, notes) for out in sweeps}
    plain, grids = split_grids(records, plans)
    if len(notes) > MOST_NOTES:
        notes[MOST_NOTES:] = [f"{len(notes) - MOST_NOTES} more were skipped."]
    return Results(plain, grids, costs, notes=tuple(notes), test_domains=_find_planned(records, plans))


def _find_planned(records: Sequence[RunRecord], plans: Mapping[Path, Sequence[Plan]]) -> dict[str, set[str]]:
    """Find the test domains of each dataset: those of the plans, and those that runs without a plan hold out."""
    by_run: dict[tuple[Path, str], list[Plan]] = defaultdict(list)
    for out, in_folder in plans.items():
        for plan in in_folder:
            for name in plan.runs:
                by_run[out, name].append(plan)
    places = [(record.folder.parent, record.folder.name) if record.folder else None for record in records]
    found = find_test_domains(record for record, place in zip(records, places) if place not in by_run)
    for record, place in zip(records, places):
        for plan in by_run.get(place, ()) if place else ():
            wanted = record.domains if plan.test_domains is None else plan.test_domains
            found[record.dataset].update(wanted)
    return found


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
