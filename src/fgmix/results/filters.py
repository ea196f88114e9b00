"""Which runs a report is about: `fgmix report --where steps=100 --algorithms erm,fgmix`. No torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fgmix.errors import unknown
from fgmix.records.schema import ResolvedSpec, RunRecord
from fgmix.results.grids import Grid

if TYPE_CHECKING:
    from fgmix.results.collect import Results


@dataclass(frozen=True)
class Filter:
    """What the runs of a report have in common; an empty field allows all."""

    where: Mapping[str, str] = field(default_factory=dict)  # values of options or settings, as text
    datasets: tuple[str, ...] = ()  # names
    algorithms: tuple[str, ...] = ()  # registered names
    test_domains: tuple[str, ...] = ()  # names; runs that hold out one of them, and columns of tables

    def apply(self, results: Results) -> Results:
        """Keep the runs that fit; raise an error for a name or a value that no run has."""
        records = results.all_records()
        if self == Filter() or not records:
            return results
        kept = {id(record) for record in self._keep(records)}
        return replace(
            results,
            records=[record for record in results.records if id(record) in kept],
            grids=[each for each in (_cut_grid(grid, kept) for grid in results.grids) if each.records],
            test_domains={
                dataset: {name for name in names if not self.test_domains or name in self.test_domains}
                for dataset, names in results.test_domains.items()
            },
        )

    def _keep(self, records: Sequence[RunRecord]) -> Sequence[RunRecord]:
        kept = _keep_named(records, "dataset of these runs", self.datasets, lambda record: [record.dataset])
        kept = _keep_named(kept, "algorithm of these runs", self.algorithms, lambda record: [record.spec.algorithm])
        kept = _keep_named(kept, "test domain of these runs", self.test_domains, lambda r: r.spec.test_domains)
        for name, text in self.where.items():
            kept = _keep_equal(kept, name.replace("-", "_"), text)
        return kept


def _keep_named(
    records: Sequence[RunRecord], what: str, wanted: Sequence[str], names: Callable[[RunRecord], Iterable[str]]
) -> Sequence[RunRecord]:
    """Keep the records that have one of the names; each name must be that of a record."""
    known = {name for record in records for name in names(record)} if wanted else set()
    for name in wanted:
        if name not in known:
            raise unknown(what, name, known)
    return [record for record in records if {*wanted} & {*names(record)}] if wanted else records


def _keep_equal(records: Sequence[RunRecord], name: str, text: str) -> Sequence[RunRecord]:
    """Keep the records with a value of an option or a setting, which is given as text."""
    options = {each for each in ResolvedSpec.__struct_fields__ if each != "settings"}
    settings = {each for record in records for each in record.spec.settings}
    if name not in options | settings:
        raise unknown("option or setting of these runs", name, options | settings)
    values = [(record, _get_texts(record, name)) for record in records]
    kept = [record for record, texts in values if any(_is_equal(each, text) for each in texts)]
    if not kept:
        raise unknown(f"value of `{name}` in these runs", text, {each for _, texts in values for each in texts})
    return kept


def _get_texts(record: RunRecord, name: str) -> list[str]:
    """Return the value of an option or a setting as text; none if the method does not have it."""
    if name == "dataset":
        return [record.spec.dataset, record.dataset]  # as given, perhaps a path, and by name
    spec = record.spec
    if name in spec.__struct_fields__:
        return [_write(getattr(spec, name))]
    return [_write(spec.settings[name])] if name in spec.settings else []


def _write(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _is_equal(value: str, text: str) -> bool:
    """Say whether two texts are the same value: 1e-3 is 0.001."""
    try:
        return value == text or float(value) == float(text)
    except ValueError:
        return False


def _cut_grid(grid: Grid, kept: set[int]) -> Grid:
    """Keep some runs of a grid, and the values that they have."""
    records = tuple(record for record in grid.records if id(record) in kept)
    values = {
        name: tuple(v for v in all_values if any(record.spec.settings.get(name) == v for record in records))
        for name, all_values in grid.values.items()
    }
    return replace(grid, records=records, values=values)
