"""Grids of settings: the runs of every combination, and how settings are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from fgmix.records.digests import digest_of
from fgmix.records.plans import Plan
from fgmix.records.schema import RunRecord

SYMBOLS = {"alpha": "α", "lam": "λ₀"}  # the paper's symbols of settings


@dataclass(frozen=True)
class Grid:
    """The finished runs of a grid."""

    values: Mapping[str, tuple[Any, ...]]  # of each setting
    records: tuple[RunRecord, ...]  # the runs, of all combinations

    def points(self) -> list[tuple[Any, ...]]:
        """List every combination of the values."""
        return list(product(*self.values.values()))

    def at(self, point: tuple[Any, ...]) -> list[RunRecord]:
        """Return the runs of a combination; for an algorithm without a setting, the same at all values of it."""
        return [
            record
            for record in self.records
            if all(record.spec.all_settings.get(name, value) == value for name, value in zip(self.values, point))
        ]

    def groups(self) -> list[tuple[str, list[RunRecord]]]:
        """Group the runs for model selection, each run once, with their settings as text: "λ₀ = 3, α = 0.1".

        An algorithm with some of the settings has a group for each combination of these.
        """
        by_label: dict[str, dict[int, RunRecord]] = {}
        for point in self.points():
            for record in self.at(point):
                own = [(name, value) for name, value in zip(self.values, point) if name in record.spec.all_settings]
                label = ", ".join(format_setting(name, value) for name, value in own)
                by_label.setdefault(label, {})[id(record)] = record
        return [(label, list(records.values())) for label, records in by_label.items()]


def split_grids(
    records: Sequence[RunRecord], plans: Mapping[Path, Sequence[Plan]]
) -> tuple[list[RunRecord], list[Grid]]:
    """Split the records into those outside of grids, and the grids; sweeps over the same grid are merged.

    An algorithm without any of a grid's settings, such as ERM in a sweep over λ₀, is outside of it: its runs are the
    same at every point, and would be counted several times.

    Args:
        records: finished runs.
        plans: plans of the sweeps in each folder.
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


def format_setting(name: str, value: Any) -> str:
    """Print a setting with its value.

    >>> format_setting("alpha", 0.1)
    'α = 0.1'
    """
    return f"{symbol(name)} = {format_value(value)}"


def symbol(setting: str) -> str:
    """Return a setting's symbol in tables, or its name."""
    return SYMBOLS.get(setting, setting)


def format_value(value: Any) -> str:
    """Print the value of a setting.

    >>> format_value(("alarm clock", "dog"))
    'alarm clock, dog'
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        text = ", ".join(map(str, value))
        # hundreds of class names that differ in a few of them: a digest tells them apart
        return text if len(text) <= 40 else f"{text[:30]}… ({digest_of(text.encode())[:6]})"
    return f"{value:g}" if isinstance(value, float) else str(value)
