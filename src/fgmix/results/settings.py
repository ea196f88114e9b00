"""Runs of one method with different settings in one folder: rows of their own, labelled by what differs. No torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Any

from msgspec import structs

from fgmix.records.rows import Row, record_row
from fgmix.records.schema import RunRecord
from fgmix.results.grids import format_setting
from fgmix.results.selection import FIXED

fixed = attrgetter(*FIXED)
_SEARCHED = ("batch_size", "dropout")  # options that a hyper-parameter search varies, besides settings


def mark_settings(records: Sequence[RunRecord], grid: Collection[str] = ()) -> list[RunRecord]:
    """Mark runs by the options and settings in which the runs of a row differ, but for a search.

    If the runs of any row of a dataset differ in an option, or in a setting that all methods have, it is the origin of
    all rows: FGMix of 100 steps is compared with ERM of 100 steps, not with that of 20. Other settings are the variant
    of the row alone.

    Args:
        records: runs of any datasets, algorithms and folders.
        grid: settings that vary because the runs are of a grid.
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
