"""Several folders in one report: each run is marked with its folder, which tables show. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from fgmix.errors import UserError
from fgmix.records.schema import RunRecord
from fgmix.results.collect import Results, collect


def collect_all(folders: Sequence[Path], from_domainbed: Sequence[Path] = ()) -> Results:
    """The results of several folders; if there are two or more, every run is marked with its origin.

    Runs of different folders are never selected together. To pool folders, collect their parent folder.

    Args:
        folders: folders of runs.
        from_domainbed: folders of DomainBed sweeps.
    """
    places = [*folders, *from_domainbed]
    if not places:
        raise UserError("Expected a folder of runs, or --from-domainbed with a folder. Found neither. Name one.")
    parts = [collect(folder, from_domainbed=number >= len(folders)) for number, folder in enumerate(places)]
    if len(parts) == 1:
        return parts[0]
    names = origin_names(folders, from_domainbed)
    return _together([_marked(part, name) for part, name in zip(parts, names)])


def origin_names(folders: Sequence[Path], from_domainbed: Sequence[Path] = ()) -> list[str]:
    """Name of each folder in tables: the end of its path, as long as needed to distinguish all folders.

    >>> origin_names([Path("/a/runs"), Path("/b/runs")], [Path("/db/sweep")])
    ['a/runs', 'b/runs', 'DomainBed: db/sweep']
    """
    parts = [folder.resolve().parts for folder in (*folders, *from_domainbed)]
    if len(set(parts)) < len(parts):
        raise UserError("Expected different folders. Found one of them twice. Name each once.")
    length = next(n for n in range(1, max(map(len, parts)) + 1) if len({each[-n:] for each in parts}) == len(parts))
    names = ["/".join(each[-length:]).replace("//", "/") for each in parts]
    return [f"DomainBed: {name}" if number >= len(folders) else name for number, name in enumerate(names)]


def _marked(results: Results, origin: str) -> Results:
    """The results with every run and note marked with the origin."""
    marked = {id(record): structs.replace(record, origin=origin) for record in results.all_records()}

    def mark(records: Sequence[RunRecord]) -> tuple[RunRecord, ...]:
        return tuple(marked[id(record)] for record in records)

    grids = [replace(grid, records=mark(grid.records)) for grid in results.grids]
    notes = tuple(f"{origin}: {note}" for note in results.notes)
    return replace(results, records=mark(results.records), grids=grids, notes=notes)


def _together(parts: Sequence[Results]) -> Results:
    """The merged results; times per step are those of the first folder that has any."""
    return Results(
        [record for part in parts for record in part.records],
        [grid for part in parts for grid in part.grids],
        next((part.costs for part in parts if part.costs is not None), None),
        partial_trials=all(part.partial_trials for part in parts),
        notes=tuple(note for part in parts for note in part.notes),
    )
