"""Runs of one method in one folder that differ in settings, which are rows of their own, or in code. No torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from msgspec import structs

from fgmix.records.rows import Row, collect_labels, label_row, record_row
from fgmix.records.schema import RunRecord
from fgmix.records.store import RunFolder
from fgmix.results.rounding import format_setting
from fgmix.results.selection import FIXED

fixed = attrgetter(*FIXED)
_SEARCHED = ("batch_size", "dropout")  # options that a hyper-parameter search varies, besides settings


def mark_settings(records: Sequence[RunRecord], grid: Collection[str] = ()) -> list[RunRecord]:
    """Mark runs by the options and settings in which the runs of a row differ, but for a search.

    If the runs of any row of a dataset differ in an option, or in a setting that all methods have, it is the origin of
    all rows: FGMix of 100 steps is compared with ERM of 100 steps, not with that of 20. Other settings are the variant
    of the row alone.

    Settings of `grid` vary because the runs are of a grid.
    """
    studies: dict[tuple[str, str], dict[Row, list[RunRecord]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        studies[record.dataset, record.origin][record_row(record)].append(record)
    marked: dict[int, RunRecord] = {}
    for rows in studies.values():
        differing = {row: _find_differing(own, grid) for row, own in rows.items()}
        settings = [{*record.spec.all_settings} for own in rows.values() for record in own]
        shared = {*FIXED, *_SEARCHED, *set.intersection(*settings)} & {
            name for own in differing.values() for name in own
        }
        for row, own in rows.items():
            alone = {*differing[row]} - shared
            for record in own:
                origin = ", ".join(filter(None, (record.origin, _describe(record, shared))))
                variant = _describe(record, alone)
                is_same = (origin, variant) == (record.origin, record.variant)
                marked[id(record)] = record if is_same else structs.replace(record, origin=origin, variant=variant)
    return [marked[id(record)] for record in records]


def _find_differing(records: Sequence[RunRecord], grid: Collection[str]) -> list[str]:
    """Find the options that set the runs of a row apart: those that a search never varies, then the others."""
    kinds = {fixed(record.spec): record.spec for record in records}  # one or two of thousands
    names = _find_needed([*kinds.values()], FIXED)
    cells: dict[tuple[Any, ...], list[RunRecord]] = defaultdict(list)  # a search varies settings between its samples
    for record in records:
        spec = record.spec
        cells[spec.hparams_seed, spec.trial_seed, frozenset(spec.test_domains), fixed(spec)].append(record)
    searched = sorted({name for record in records for name in record.spec.all_settings} - {*grid})
    for same in (each for each in cells.values() if len(each) > 1):
        names += [name for name in _find_needed([r.spec for r in same], (*searched, *_SEARCHED)) if name not in names]
    return names


def _find_needed(specs: Sequence[Any], names: Sequence[str]) -> list[str]:
    """Find the first options that tell specs apart, without those that follow from others before them."""
    kinds = {tuple(repr(_get(spec, name)) for name in names) for spec in specs}
    needed: list[int] = []
    for place in range(len(names) if len(kinds) > 1 else 0):
        values: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for kind in kinds:
            values[tuple(kind[i] for i in needed)].add(kind[place])
        if any(len(each) > 1 for each in values.values()):
            needed.append(place)
    return [names[place] for place in needed]


def _get(spec: Any, name: str) -> Any:
    """Return an option or a setting; None for a setting that a method does not have."""
    return getattr(spec, name) if name in spec.__struct_fields__ else spec.all_settings.get(name)


def _describe(record: RunRecord, names: Collection[str]) -> str:
    """Describe some options and settings of a run, options first; empty for none."""
    settings = record.spec.all_settings
    own = [name for name in names if name in record.spec.__struct_fields__ or name in settings]
    ordered = sorted(own, key=lambda name: (name in settings, name))
    return ", ".join(format_setting(name, _get(record.spec, name)) for name in ordered)


def describe_codes(records: Sequence[RunRecord]) -> list[str]:
    """Write a note for each row of a dataset whose runs are of different code of their method, oldest files first."""
    rows: dict[tuple[str, Row], dict[str, list[RunRecord]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        rows[record.dataset, record_row(record)][record.code].append(record)
    labels = collect_labels(records)
    return [
        f"{label_row(labels, row)} on {dataset}: {'; '.join(_list_runs(by_code))}. A mean over them is not reported. "
        "Delete the older runs and rerun the sweep, or add --accept-code."
        for (dataset, row), by_code in rows.items()
        if len(by_code) > 1
    ]


def _list_runs(by_code: dict[str, list[RunRecord]]) -> list[str]:
    dates = {code: max(map(_read_date, records)) for code, records in by_code.items()}
    return [
        f"{len(by_code[code])} run{'s' * (len(by_code[code]) > 1)} of {f'code {code}' if code else 'unknown code'}, "
        + (f"the last of {datetime.fromtimestamp(dates[code]):%Y-%m-%d %H:%M}, " if dates[code] else "")
        + f"such as {by_code[code][0].folder or by_code[code][0].spec.name}"
        for code in sorted(by_code, key=dates.__getitem__)
    ]


def _read_date(record: RunRecord) -> float:
    """Return when the file of a record was written; 0 for a record of a packed file."""
    file = RunFolder(record.folder).record if record.folder else None
    return file.stat().st_mtime if file and file.exists() else 0.0
