"""Finished runs: those of a folder or several, some of them, and one row for each. No torch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgmix.errors import bad_value
from fgmix.records.schema import RunRecord
from fgmix.results.filters import Names, check_option, get_values, keep_runs
from fgmix.results.grids import Grid
from fgmix.results.tabular import Tabular

if TYPE_CHECKING:
    from fgmix.results.costs import Costs

KEY = ("dataset", "algorithm", "arm", "test_domains", "trial_seed", "hparams_seed")  # options that tell runs apart


@dataclass(frozen=True, repr=False)
class Runs(Tabular):
    """Finished runs, as `read_runs` returns them: a sequence of records, which `select` and `tabulate` accept.

    Args:
        records: runs outside of grids.
        grids: runs of grids.
        single_source: runs of studies in which several domains are the only source in turn.
        costs: times per step; None if they were not measured.
        partial_trials: whether the overall table averages a trial over the domains it has, as DomainBed's does.
        notes: warnings from reading, such as a record that was skipped.
        test_domains: test domains of each dataset, those planned and not yet finished among them; else those that runs
            hold out.
        folders: folders, or packed files, that the runs were read from.
        from_domainbed: folders of DomainBed's sweeps that the runs were read from.
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
        return keep_runs(self, where or {}, datasets, algorithms, test_domains)

    def list_values(self, name: str) -> list[Any]:
        """List the different values of an option or a setting, in order of appearance."""
        check_option(self, name)
        return list(dict.fromkeys(value for record in self for value in get_values(record, name)[-1:]))

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
    options = {name: _flatten(get_values(record, name)[-1]) for name in names}
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
