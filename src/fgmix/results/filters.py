"""Some of the runs: `fgmix report --where steps=100 --algorithms erm,fgmix`. No torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fgmix.errors import unknown
from fgmix.records.schema import ResolvedSpec, RunRecord
from fgmix.results.grids import Grid

if TYPE_CHECKING:
    from fgmix.results.runs import Runs


Names = str | Sequence[str]  # one name or several


def keep_runs(
    runs: Runs, where: Mapping[str, Any], datasets: Names = (), algorithms: Names = (), test_domains: Names = ()
) -> Runs:
    """Keep the runs that fit; raise an error for a name or a value that no run has. See `Runs.keep`."""
    named = {
        "dataset": (_list_names(datasets), lambda record: [record.dataset]),
        "algorithm": (_list_names(algorithms), lambda record: [record.spec.algorithm]),
        "test domain": (tests := _list_names(test_domains), lambda record: record.spec.test_domains),
    }
    records: Sequence[RunRecord] = runs.all_records()
    if not records or not (where or any(wanted for wanted, _ in named.values())):
        return runs
    for what, (wanted, names) in named.items():
        records = _keep_named(records, f"{what} of these runs", wanted, names)
    for name, value in where.items():
        records = _keep_equal(records, name.replace("-", "_"), _write(value))
    kept = {id(record) for record in records}
    grids = [each for each in (_cut_grid(grid, kept) for grid in runs.grids) if each.records]
    plain = {id(record): record for record in runs.records if id(record) in kept}
    plain |= {id(record): record for grid in grids if len(grid.points()) == 1 for record in grid.records}
    return replace(
        runs,
        records=[*plain.values()],
        single_source=[record for record in runs.single_source if id(record) in kept],
        grids=[grid for grid in grids if len(grid.points()) > 1],  # the runs of a single point are no grid
        test_domains={
            dataset: {name for name in every if not tests or name in tests}
            for dataset, every in runs.test_domains.items()
        },
    )


def _list_names(names: Names) -> Sequence[str]:
    return (names,) if isinstance(names, str) else tuple(names)


def _keep_named(
    records: Sequence[RunRecord], what: str, wanted: Sequence[str], names: Callable[[RunRecord], Iterable[str]]
) -> Sequence[RunRecord]:
    """Keep the records that have one of the names; each name must be that of a record."""
    known = {name for record in records for name in names(record)} if wanted else set()
    for name in wanted:
        if name not in known:
            raise unknown(what, name, known)
    return [record for record in records if {*wanted} & {*names(record)}] if wanted else records


def check_option(records: Iterable[RunRecord], name: str) -> None:
    """Raise an error for what is neither an option nor a setting of a run."""
    options = {each for each in ResolvedSpec.__struct_fields__ if each != "settings"}
    settings = {each for record in records for each in record.spec.all_settings}
    if name not in options | settings:
        raise unknown("option or setting of these runs", name, options | settings)


def _keep_equal(records: Sequence[RunRecord], name: str, text: str) -> Sequence[RunRecord]:
    """Keep the records with a value of an option or a setting, which is given as text."""
    check_option(records, name)
    values = [(record, [*map(_write, get_values(record, name))]) for record in records]
    kept = [record for record, texts in values if any(_is_equal(each, text) for each in texts)]
    if not kept:
        raise unknown(f"value of `{name}` in these runs", text, {each for _, texts in values for each in texts})
    return kept


def get_values(record: RunRecord, name: str) -> list[Any]:
    """Return the value of an option or a setting; none if the method does not have it."""
    spec = record.spec
    if name == "dataset":
        return [spec.dataset, record.dataset]  # as given, perhaps a path, and by name
    if name in spec.__struct_fields__:
        return [getattr(spec, name)]
    settings = spec.all_settings
    return [settings[name]] if name in settings else []


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
        name: tuple(v for v in all_values if any(record.spec.all_settings.get(name) == v for record in records))
        for name, all_values in grid.values.items()
    }
    return replace(grid, records=records, values=values)
