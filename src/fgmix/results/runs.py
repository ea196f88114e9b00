"""Finished runs: those of a folder or several, some of them, grids of settings, and one row for each run. No torch."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import product
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgmix.errors import UserError, bad_value, unknown
from fgmix.escape import escape_csv
from fgmix.records.files import write_bytes
from fgmix.records.schema import ResolvedSpec, RunRecord
from fgmix.results.rounding import format_setting

if TYPE_CHECKING:
    import pandas

    from fgmix.results.costs import Costs

KEY = ("dataset", "algorithm", "arm", "test_domains", "trial_seed", "hparams_seed")  # options that tell runs apart
Names = str | Sequence[str]  # one name or several


class Tabular(ABC):
    """Rows of plain values, as a pandas DataFrame or as CSV."""

    @abstractmethod
    def to_dicts(self) -> list[dict[str, Any]]:
        """Describe each row in a dictionary, all with the same keys."""

    def to_frame(self) -> pandas.DataFrame:
        """Return the rows as a DataFrame; pandas, which fgmix does not need otherwise, must be installed."""
        if find_spec("pandas") is None:
            raise UserError(
                "Expected the library pandas. It is not installed. Run `pip install pandas`, or use to_csv."
            )
        import pandas

        return pandas.DataFrame(self.to_dicts())

    def to_csv(self, path: str | PathLike[str] | None = None) -> str:
        """Write the rows as CSV, to a file if a path is given; return the text."""
        rows = self.to_dicts()
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(map(escape_csv, rows[0] if rows else ()))
        writer.writerows([escape_csv(v) if isinstance(v, str) else v for v in row.values()] for row in rows)
        if path is not None:
            write_bytes(Path(path), out.getvalue().encode(errors="backslashreplace"))
        return out.getvalue()


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

    def keep(self, kept: Collection[int]) -> Grid:
        """Keep the runs with these ids, and the values that they have."""
        records = tuple(record for record in self.records if id(record) in kept)
        present = {name: {record.spec.all_settings.get(name) for record in records} for name in self.values}
        values = {name: tuple(value for value in each if value in present[name]) for name, each in self.values.items()}
        return Grid(values, records)


@dataclass(frozen=True, repr=False)
class Runs(Tabular):
    """Finished runs, as `read_runs` returns them: a sequence of records, which `select` and `tabulate` accept.

    Args:
        records: runs outside of grids.
        grids: runs of grids.
        costs: times per step; None if they were not measured.
        partial_trials: whether the overall table averages a trial over the domains it has, as DomainBed's does.
        notes: warnings from reading, such as a record that was skipped.
        test_domains: test domains of each dataset, those planned and not yet finished among them; else those that runs
            hold out.
        folders: folders, or packed files, that the runs were read from.
        from_domainbed: folders of DomainBed's sweeps that the runs were read from.
        single_source: runs of studies in which several domains are the only source in turn.
    """

    records: Sequence[RunRecord]
    grids: Sequence[Grid] = ()
    costs: Costs | None = None
    partial_trials: bool = False
    notes: tuple[str, ...] = ()
    test_domains: Mapping[str, Collection[str]] = field(default_factory=dict)
    folders: tuple[Path, ...] = ()
    from_domainbed: tuple[Path, ...] = ()
    single_source: Sequence[RunRecord] = ()

    def __len__(self) -> int:
        return len(self.all_records())

    def __iter__(self) -> Iterator[RunRecord]:
        return iter(self.all_records())

    def __repr__(self) -> str:
        datasets, algorithms = (sorted({*map(str, self.list_values(name))}) for name in ("dataset", "algorithm"))
        notes = f"; {len(self.notes)} notes, see `.notes`" if self.notes else ""
        return f"<{len(self)} runs of {', '.join(algorithms)} on {', '.join(datasets)}{notes}>"

    def groups(self) -> list[tuple[str, Sequence[RunRecord]]]:
        """Group the records for model selection, each with its settings in a grid; empty text outside of grids."""
        return [("", self.records), *(group for grid in self.grids for group in grid.groups())]

    def all_records(self) -> list[RunRecord]:
        """List every finished run once."""
        records = [*self.records, *self.single_source, *(record for grid in self.grids for record in grid.records)]
        return list({id(record): record for record in records}.values())

    def keep(
        self,
        where: Mapping[str, Any] | None = None,
        *,
        datasets: Names = (),
        algorithms: Names = (),
        test_domains: Names = (),
    ) -> Runs:
        """Keep the runs that fit; a name or a value that no run has is an error.

        Args:
            where: values of options or settings, such as {"steps": 100, "lam": 3}.
            datasets: names of datasets.
            algorithms: names of methods.
            test_domains: names of domains; runs that hold out one of them, and columns of tables.
        """
        records: Sequence[RunRecord] = self.all_records()
        if not records or not (where or datasets or algorithms or test_domains):
            return self
        records = _keep_named(records, "dataset", datasets, lambda record: [record.dataset])
        records = _keep_named(records, "algorithm", algorithms, lambda record: [record.spec.algorithm])
        records = _keep_named(records, "test domain", test_domains, lambda record: record.spec.test_domains)
        for name, value in (where or {}).items():
            records = _keep_equal(records, name.replace("-", "_"), write_value(value))
        kept = {id(record): record for record in records}
        grids = [grid for grid in (grid.keep(kept.keys()) for grid in self.grids) if grid.records]
        points = {id(record): record for grid in grids if len(grid.points()) == 1 for record in grid.records}
        tests = _list_names(test_domains)
        return replace(
            self,
            records=[*({id(r): r for r in self.records if id(r) in kept} | points).values()],
            single_source=[record for record in self.single_source if id(record) in kept],
            grids=[grid for grid in grids if len(grid.points()) > 1],  # the runs of a single point are no grid
            test_domains={
                dataset: {name for name in every if not tests or name in tests}
                for dataset, every in self.test_domains.items()
            },
        )

    def list_values(self, name: str) -> list[Any]:
        """List the different values of an option or a setting, in order of appearance."""
        _check_option(self, name)
        return list(dict.fromkeys(value for record in self for value in _get_values(record, name)[-1:]))

    def group(self, name: str) -> dict[Any, Runs]:
        """Group the runs by an option or a setting: a part for each value; runs without the setting are in none."""
        return {value: self.keep({name: value}) for value in self.list_values(name)}

    def to_dicts(self) -> list[dict[str, Any]]:
        """Describe each run in a dictionary, all with the same keys.

        Keys: the run's folder; what it is a run of; its status; for each model (raw weights, and averaged ones with the
        ending `_swa` or `_swad`) the step that training-domain validation selects, the validation value and the
        accuracy on the test domain, between 0 and 1; then all options and settings. What a run lacks is None.
        """
        every = [_describe(record) for record in self]
        names = dict.fromkeys(name for row in every for name in row)
        return [{name: row.get(name) for name in names} for row in every]


def as_runs(runs: Runs | RunRecord | Iterable[RunRecord]) -> Runs:
    """Return runs as `Runs`: as they are, or made of one record or several."""
    if isinstance(runs, Runs):
        return runs
    records = [runs] if isinstance(runs, RunRecord) else [*runs] if isinstance(runs, Iterable) else None
    if records is None or not all(isinstance(record, RunRecord) for record in records):
        raise bad_value("runs", "runs, as read_runs returns them, or records", runs)
    return Runs(records)


def _describe(record: RunRecord) -> dict[str, Any]:
    names = [name for name in record.spec.__struct_fields__ if name not in ("settings", "dataset_name")]
    options = {name: _flatten(_get_values(record, name)[-1]) for name in names}
    first = {name: options.pop(name) for name in KEY}
    found: dict[str, Any] = {}
    for model in record.models:
        place, validation = record.best(model)
        end = "" if model == "raw" else f"_{model}"
        values = (record.evaluations[place].step, validation, record.test_accuracy(model))
        found |= {f"{name}{end}": value for name, value in zip(("step", "validation", "accuracy"), values)}
    folder = str(record.folder) if record.folder else record.spec.name
    row = {"run": folder, "method": record.label, **first, "origin": record.origin, "status": record.status, **found}
    others = {**record.spec.settings, **options}  # an option wins, as in `keep`
    return {**row, **{name: value for name, value in others.items() if name not in row}}


def _flatten(value: Any) -> Any:
    """Write a sequence as a text, such as the names of domains; a cell of a table holds one value."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else value


def _list_names(names: Names) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def _keep_named(
    records: Sequence[RunRecord], what: str, names: Names, names_of: Callable[[RunRecord], Iterable[str]]
) -> Sequence[RunRecord]:
    """Keep the records that have one of the names, all if none is given; each name must be that of a record."""
    wanted = _list_names(names)
    known = {name for record in records for name in names_of(record)} if wanted else set()
    for name in wanted:
        if name not in known:
            raise unknown(f"{what} of these runs", name, known)
    return [record for record in records if {*wanted} & {*names_of(record)}] if wanted else records


def _keep_equal(records: Sequence[RunRecord], name: str, text: str) -> Sequence[RunRecord]:
    """Keep the records with a value of an option or a setting, which is given as text."""
    _check_option(records, name)
    values = [(record, [*map(write_value, _get_values(record, name))]) for record in records]
    kept = [record for record, texts in values if any(_is_equal(each, text) for each in texts)]
    if not kept:
        raise unknown(f"value of `{name}` in these runs", text, {each for _, texts in values for each in texts})
    return kept


def _check_option(records: Iterable[RunRecord], name: str) -> None:
    """Raise an error for what is neither an option nor a setting of a run."""
    options = {each for each in ResolvedSpec.__struct_fields__ if each != "settings"}
    known = options.union(*(record.spec.all_settings for record in records))
    if name not in known:
        raise unknown("option or setting of these runs", name, known)


def _get_values(record: RunRecord, name: str) -> list[Any]:
    """Return the value of an option or a setting; none if the method does not have it."""
    spec = record.spec
    if name == "dataset":
        return [spec.dataset, record.dataset]  # as given, perhaps a path, and by name
    if name in spec.__struct_fields__:
        return [getattr(spec, name)]
    settings = spec.all_settings
    return [settings[name]] if name in settings else []


def write_value(value: Any) -> str:
    """Write the value of an option or a setting as a flag has it."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _is_equal(value: str, text: str) -> bool:
    """Say whether two texts are the same value: 1e-3 is 0.001."""
    try:
        return value == text or float(value) == float(text)
    except ValueError:
        return False
