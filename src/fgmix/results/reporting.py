"""From folders of runs to the text of a report: collect, select, tabulate, compare. No torch."""

from __future__ import annotations

import gc
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fgmix.errors import UserError, unknown
from fgmix.files import read_json
from fgmix.results.domainbed import from_domainbed as read_domainbed
from fgmix.results.domainbed import hparams_of, is_domainbeds
from fgmix.results.formats import render
from fgmix.results.grids import Grid, grid_tables, split_grids
from fgmix.results.labels import method_label
from fgmix.results.published import beside, cost_table
from fgmix.results.selection import Cell, Method, Missing, Rule, Selected, Selection, select
from fgmix.results.statistics import (
    ERM,
    Comparison,
    accuracies_by_method,
    compare,
    comparison_table,
    marked,
    rank_methods,
    ranking_table,
    unranked_table,
)
from fgmix.results.tables import Spread, Table, dataset_table, overall_table
from fgmix.runs.record import RunRecord, read_record
from fgmix.runs.spec import RunSpec
from fgmix.sweeps.folder import read_plans

COST_FILE = "cost.json"  # times per step of the preset paper-cost


class NothingFinished(UserError):
    """A folder without a finished run: while a sweep runs, that may change."""


@dataclass(frozen=True)
class Results:
    """What a folder holds.

    Args:
        records: finished runs, but for those that belong to a grid alone.
        grids: finished runs of grids.
        step_milliseconds: time per step by method, where it was measured.
        partial_trials: whether the overall table averages a trial over the domains it has, as DomainBed's does.
        notes: what a reader should know of how it was read.
    """

    records: Sequence[RunRecord]
    grids: Sequence[Grid] = ()
    step_milliseconds: Mapping[Method, float] | None = None
    partial_trials: bool = False
    notes: tuple[str, ...] = ()

    def groups(self) -> list[tuple[str, Sequence[RunRecord]]]:
        """Records that are selected together, each group with what sets it apart."""
        apart = [(grid.label(point), grid.at(point)) for grid in self.grids for point in grid.points()]
        return [("", self.records), *apart]

    def all_records(self) -> list[RunRecord]:
        """Every finished run once."""
        found = [*self.records, *(record for grid in self.grids for record in grid.records)]
        return list({id(record): record for record in found}.values())


def collect(folder: Path, *, from_domainbed: bool = False, known: dict[Path, RunRecord] | None = None) -> Results:
    """What a folder (or the folders below it) holds, or the runs of a DomainBed sweep.

    Args:
        folder: where to look.
        from_domainbed: whether DomainBed made it.
        known: records that were read before, by file; what is read now is added.
    """
    if from_domainbed:
        sweep = read_domainbed(folder)
        return Results(sweep.records, partial_trials=True, notes=sweep.notes)
    with _collector_paused():
        found = [_read_once(path, {} if known is None else known) for path in _record_files(folder)]
    records = [record for record in found if record.spec.test_domains]  # a model to be used holds none out
    cost = _read_cost(folder / COST_FILE) if (folder / COST_FILE).exists() else None
    if not records and cost is None:
        raise NothingFinished(
            f"Expected finished runs in {folder}. Found none. Run `fgmix sweep --out {folder}` first."
        )
    sweeps = dict.fromkeys(record.folder.parent for record in records if record.folder)  # each run lies in its sweep's
    plain, grids = split_grids(records, {out: read_plans(out) for out in sweeps})
    return Results(plain, grids, cost)


def _read_cost(path: Path) -> dict[Method, float]:
    """Times per step that `fgmix sweep --preset paper-cost` noted, with and without averaging."""
    content = read_json(path)
    try:
        raw, averaged = dict(content["milliseconds"]), dict(content.get("averaged_milliseconds", ()))
        return {Method(name): float(time) for name, time in raw.items()} | {
            Method(name, "swa"): float(time) for name, time in averaged.items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"Expected times per step at {path}. Found something else. Measure them again with `fgmix sweep --preset "
            "paper-cost`."
        ) from error


def _read_once(path: Path, known: dict[Path, RunRecord]) -> RunRecord:
    if path not in known:
        known[path] = read_record(path)
    return known[path]


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Records live on, and the collector would look at all of them again and again: a quarter of 20,000's time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _record_files(folder: Path) -> list[Path]:
    """Every record.json, without a look into the folders of finished runs, which hold nothing below."""
    found = []
    for place, folders, files in os.walk(folder):
        if "record.json" in files:
            found.append(Path(place, "record.json"))
            folders.clear()
        folders.sort()  # the walk goes on in this order
    return found


def report_tables(
    selection: Selection, *, spread: Spread = "stderr", published: bool = False, partial_trials: bool = False
) -> list[Table]:
    """A table per dataset, the overall one where there are several, the differences from ERM, and the ranks."""
    datasets: list[str | None] = [*selection.domains]
    if len(datasets) > 1:
        datasets.append(None)
    tables = []
    against_erm: list[Comparison] = []
    for name in datasets:
        table = (
            dataset_table(selection, name, spread=spread)
            if name
            else overall_table(selection, spread=spread, partial_trials=partial_trials)
        )
        if published:
            table = beside(table)  # it looks rows up by their label, which a mark changes
        against_erm = compared(selection, name)
        tables.append(marked(table, against_erm) if against_erm else table)
    if against_erm:  # of the last table, which is over all datasets
        tables.append(comparison_table(against_erm))
    return [*tables, *_rank_tables(selection)]


def _rank_tables(selection: Selection) -> list[Table]:
    """Average ranks, or why there are none; nothing for one method, which has nothing to be ranked against."""
    methods = selection.methods()
    if len(methods) < 2:
        return []
    try:
        return [ranking_table(rank_methods(selection))]
    except UserError as error:
        return [unranked_table(methods, str(error))]


def compared(selection: Selection, dataset: str | None = None) -> list[Comparison]:
    """Every method against ERM; nothing where ERM has no number."""
    return compare(selection, dataset=dataset) if ERM in accuracies_by_method(selection, dataset) else []


def report_text(
    results: Results,
    *,
    rule: Rule = "training_domain",
    format: str = "md",
    spread: Spread = "stderr",
    published: bool = False,
) -> str:
    """All tables of a folder as text."""
    selection = select(results.records, rule) if results.records else None
    tables = all_tables(results, selection, rule=rule, spread=spread, published=published)
    return render(tables, format)


def all_tables(
    results: Results, selection: Selection | None, *, rule: Rule, spread: Spread, published: bool
) -> list[Table]:
    """Tables of the plain runs, of every grid, and of the times per step.

    Args:
        results: what a folder holds.
        selection: what was selected among the plain runs; None if there are none.
        rule: the rule, for the grids.
        spread: what stands after ±.
        published: whether the paper's numbers stand beside ours.
    """
    tables: list[Table] = []
    if selection is not None:
        shown = {"published": published, "partial_trials": results.partial_trials}
        tables += report_tables(selection, spread=spread, **shown)
    for grid in results.grids:
        tables += grid_tables(grid, rule=rule, spread=spread, published=published)
    if results.step_milliseconds is not None:
        tables.append(cost_table(results.step_milliseconds))
    return tables


def explained(
    results: Results, dataset: str, algorithm: str, domain: str, *, rule: Rule = "training_domain"
) -> list[str]:
    """The runs behind a number: what was selected in each trial, from what, and the command that makes it again."""
    lines: list[str] = []
    known: set[str] = set()
    for apart, records in results.groups():
        for cell, found in select(records, rule).cells.items():
            known.add(" ".join((cell.dataset, cell.algorithm, cell.test_domain)))
            if (cell.dataset, cell.algorithm, cell.test_domain) == (dataset, algorithm, domain):
                lines += _cell_lines(cell, found, apart)
    if not lines:
        raise unknown("cell", f"{dataset} {algorithm} {domain}", known)
    return lines


def _cell_lines(cell: Cell, found: Selected | Missing, apart: str) -> list[str]:
    parts = (
        method_label(cell.algorithm, cell.model),
        apart,
        cell.dataset,
        cell.test_domain,
        f"trial {cell.trial_seed}",
    )
    head = ", ".join(part for part in parts if part)
    if isinstance(found, Missing):
        return [f"{head}: no number ({found.reason})", ""]
    return [
        f"{head}: {100 * found.accuracy:.1f} % (validation {100 * found.validation:.1f} % at step {found.step}, "
        f"the best of {1 + len(found.runners_up)} draws)",
        *_run_lines("reported", found.record),
        *(line for record in found.validated_by for line in _run_lines("validated by", record)),
        *(line for other in found.runners_up for line in _run_lines("not selected", other.record)),
        "",
    ]


def _run_lines(role: str, record: RunRecord) -> list[str]:
    made = f"fgmix {record.fgmix_version}, data {record.data_fingerprint}, {_made(record.folder)}"
    return [
        f"  {role}: {record.folder or 'a run that was not read from a folder'}",
        f"    draw {record.spec.hparams_seed}{'' if is_domainbeds(record) else f', {made}'}",
        f"    {origin(record)}",
    ]


def origin(record: RunRecord) -> str:
    """The command that makes a run again; for a run of DomainBed's, which is not ours to repeat, what it was made with.

    DomainBed's hyper-parameters have names of their own, and ours are known to the algorithms alone, which need torch.
    """
    if is_domainbeds(record):
        hparams = ", ".join(f"{name}={_setting(value)}" for name, value in hparams_of(record.spec).items())
        return f"made by DomainBed with {hparams}"
    return command(record.spec, str(record.folder.parent) if record.folder else "runs")


def _made(folder: Path | None) -> str:
    file = folder / "spec.json" if folder else None
    if file is None or not file.exists():
        return "environment not recorded"
    environment = read_json(file)["environment"]
    return ", ".join(f"{name} {value}" for name, value in environment.items() if value is not None)


def command(spec: RunSpec, out: str = "runs") -> str:
    """The command that makes a run again: the same folder name, hence the same run.

    >>> spec = RunSpec(dataset="digits", algorithm="erm", test_domains=("photo",), steps=10, settings={"lr": 0.01})
    >>> command(spec)
    'fgmix train --dataset digits --algorithm erm --test-domain photo --steps 10 --set lr=0.01 --out runs'
    """
    words = ["fgmix", "train", "--dataset", spec.dataset, "--algorithm", spec.algorithm]
    for domain in spec.test_domains:
        words += ["--test-domain", domain]
    defaults = {field.name: field.default for field in fields(RunSpec)}
    for name, value in spec.as_dict().items():
        if name not in ("dataset", "algorithm", "test_domains", "settings") and value != defaults[name]:
            words += _option(name, value)
    for name, value in spec.settings.items():
        words += ["--set", f"{name}={_setting(value)}"]
    return shlex.join([*words, "--out", out])


def _option(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]


def _setting(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
