"""From folders to runs: finished runs, grids, times per step, and sweeps of DomainBed. No torch."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from fgmix.errors import UserError, reason_of
from fgmix.records.files import check_path
from fgmix.records.schema import RunRecord
from fgmix.records.status import Plan, read_plans
from fgmix.records.store import RECORD, read_record, unpack
from fgmix.results.costs import read_costs
from fgmix.results.domainbed import from_domainbed as read_domainbed
from fgmix.results.runs import Grid, Names, Runs
from fgmix.results.selection import find_test_domains
from fgmix.results.settings import describe_codes, mark_settings

Place = str | os.PathLike[str]
MOST_NOTES = 10  # about skipped files


class NothingFinished(UserError):
    """A folder without a finished run: while a sweep runs, that may change."""


def read_runs(
    *folders: Place,
    from_domainbed: Place | Sequence[Place] = (),
    where: Mapping[str, Any] | None = None,
    datasets: Names = (),
    algorithms: Names = (),
    test_domains: Names = (),
    accept_code: bool = False,
    known: dict[Path, RunRecord] | None = None,
) -> Runs:
    """Read the finished runs in folders and below them. No torch is imported.

    A record that cannot be read is left out, with a note in `notes` that names it. Runs of several folders are marked
    with their folder, and never selected together; to pool folders, read their parent folder.

    Args:
        folders: folders of runs or sweeps, or files that `fgmix report --pack` wrote.
        from_domainbed: folder or folders of DomainBed sweeps.
        where: values of options or settings of the runs to keep, such as {"steps": 100, "lam": 3}.
        datasets: names of the datasets to keep.
        algorithms: names of the methods to keep.
        test_domains: names of the test domains to keep.
        accept_code: treat runs of different code of a method as equal.
        known: records that were read before, by file; new ones are added to it.

    Example:
        >>> read_runs("docs/records/pacs.records.xz", algorithms=["erm", "fgmix"])
        <60 runs of erm, fgmix on PACS>
    """
    ours, theirs = _list_places("folders", folders), _list_places("from_domainbed", from_domainbed)
    if not ours and not theirs:
        raise UserError("Expected a folder of runs, or --from-domainbed with a folder. Found neither. Name one.")
    names = name_origins(ours, theirs) if len(ours) + len(theirs) > 1 else [""]
    records, notes, plans = [], [], dict[Path, list[Plan]]()
    known = {} if known is None else known
    parts = [*(_read_folder(place, known, plans) for place in ours), *map(read_domainbed, theirs)]
    planned: dict[str, set[str]] = defaultdict(set)
    for part, name in zip(parts, names):
        notes += [f"{name}: {note}" if name else note for note in part.notes]
        changed = {**({"origin": name} if name else {}), **({"code": ""} if accept_code else {})}
        records += [structs.replace(record, **changed) for record in part.records]
        for dataset, held_out in part.test_domains.items():
            planned[dataset].update(held_out)
    plain, grids = split_grids(records, plans)
    joined = Runs(
        plain,
        grids,
        next((part.costs for part in parts if part.costs is not None), None),
        partial_trials=all(part.partial_trials for part in parts),
        notes=tuple(notes),
        test_domains=planned,
        folders=tuple(ours),
        from_domainbed=tuple(theirs),
    )
    return _mark_settings(joined.keep(where, datasets=datasets, algorithms=algorithms, test_domains=test_domains))


def _list_places(name: str, places: Any) -> list[Path]:
    several = places if isinstance(places, list | tuple) else [places]
    return [check_path(name, place) for place in several]


def _mark_settings(runs: Runs) -> Runs:
    """Mark runs of one row whose settings differ, which are rows of their own, and add notes on their code."""
    grids = [replace(grid, records=tuple(mark_settings(grid.records, grid.values))) for grid in runs.grids]
    notes = (*runs.notes, *describe_codes(runs.all_records()))
    others, single = split_single_source(mark_settings(runs.records))
    return replace(runs, records=others, single_source=single, grids=grids, notes=notes)


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


def _read_folder(folder: Path, known: dict[Path, RunRecord], plans: dict[Path, list[Plan]]) -> Runs:
    """Read all records of a folder, with its times per step; its plans are added to `plans`."""
    if os.path.lexists(folder) and not os.path.isdir(folder):
        records = unpack(folder)
        return Runs(records, test_domains=find_test_domains(records))
    notes: list[str] = []
    files = [_read_once(path, known, notes) for path in _find_records(folder, notes)]
    records = [record for record in files if record and record.spec.test_domains]  # a deployed model has no test domain
    costs = read_costs(folder)
    if not records and costs is None:
        advice = notes[0] if notes else f"Run `fgmix sweep --out {folder}` first."
        raise NothingFinished(f"Expected finished runs in {folder}. Found none. {advice}")
    sweeps = dict.fromkeys(record.folder.parent for record in records if record.folder)  # folders of the sweeps
    own = {out: _read_plans(out, notes) for out in sweeps}
    plans |= own
    if len(notes) > MOST_NOTES:
        notes[MOST_NOTES:] = [f"{len(notes) - MOST_NOTES} more were skipped."]
    return Runs(records, costs=costs, notes=tuple(notes), test_domains=_find_planned(records, own))


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


def split_grids(
    records: Sequence[RunRecord], plans: Mapping[Path, Sequence[Plan]]
) -> tuple[list[RunRecord], list[Grid]]:
    """Split the records into those outside of grids, and the grids; sweeps over the same grid are merged.

    An algorithm without any of a grid's settings, such as ERM in a sweep over λ₀, is outside of it: its runs are the
    same at every point, and would be counted several times.
    """
    if not any(plan.grid for in_folder in plans.values() for plan in in_folder):
        return list(records), []
    plain: set[Path] = set()
    members: dict[tuple[tuple[str, tuple[Any, ...]], ...], set[Path]] = {}
    for folder, in_folder in plans.items():
        for plan in in_folder:
            wanted = members.setdefault(tuple(plan.grid.items()), set()) if plan.grid else plain
            wanted.update(folder / name for name in plan.runs)
    grids = [
        Grid(
            dict(values), tuple(r for r in records if r.folder in wanted and r.spec.all_settings.keys() & dict(values))
        )
        for values, wanted in members.items()
    ]
    only_in_grids = {record.folder for grid in grids for record in grid.records} - plain
    return [record for record in records if record.folder not in only_in_grids], [
        grid for grid in grids if grid.records
    ]


def split_single_source(records: Sequence[RunRecord]) -> tuple[list[RunRecord], list[RunRecord]]:
    """Split off the runs of studies over single sources: several domains are the only source in turn.

    In a study that also holds out single domains, runs that hold out two are the pairs of leave-one-domain-out.
    """
    sets: dict[tuple[str, str], set[tuple[str, ...]]] = defaultdict(set)
    for record in records:
        sets[record.dataset, record.origin].add(record.spec.test_domains)

    def is_single(record: RunRecord) -> bool:
        tests, every = record.spec.test_domains, sets[record.dataset, record.origin]
        least = 2 if all(len(names) > 1 for names in every) else 3
        others = [names for names in every if len(names) == len(tests)]
        return len(record.sources) == 1 and len(tests) >= least and len(others) > 1

    single = [record for record in records if is_single(record)]
    known = {id(record) for record in single}
    return [record for record in records if id(record) not in known], single
