"""Tables that some studies add: selection rules side by side, lists of images, single sources, grids of settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, get_args

from fgmix.records.metrics import name_part
from fgmix.records.rows import Row, collect_labels, label_row
from fgmix.records.schema import RunRecord
from fgmix.results.paper_rows import PAPER
from fgmix.results.published import AVERAGE, sensitivity
from fgmix.results.rounding import SYMBOLS, format_setting, format_value
from fgmix.results.runs import Grid, Runs
from fgmix.results.selection import LAST, Cell, Missing, Rule, Selected, Selection, find_test_domains, select
from fgmix.results.tables import (
    SPREADS,
    Entry,
    Numbers,
    Spread,
    Table,
    TableRow,
    average_dataset,
    average_domains,
    average_trials,
    dataset_table,
    order_rows,
    overall_caption,
    write_caption,
)

ORACLE: Rule = "oracle"
COLUMNS: dict[Rule, str] = {
    "training_domain": "training-domain validation",
    "last_evaluations": f"last {LAST} evaluations",
    "leave_one_out": "leave-one-domain-out",
    "oracle": "oracle",
}
SOURCE = Entry(text="source")  # entry of the domain that a row is trained on
PAPER_DATASET = "TerraIncognita"  # of the paper's grid
PAPER_GRID = ("lam", "alpha")


# Selection rules: `fgmix report --selection all`


def rule_tables(runs: Runs, spread: Spread = "stderr") -> list[Table]:
    """Make a table for each dataset: rows × selection rules, and the difference of each rule from the oracle."""
    selections = {rule: select(runs, rule) for rule in get_args(Rule)}
    return [_compare_rules(selections, dataset, spread) for dataset in selections[ORACLE].domains]


def _compare_rules(selections: Mapping[Rule, Selection], dataset: str, spread: Spread) -> Table:
    any_rule = selections[ORACLE]
    numbers = {
        row: {rule: average_domains(selection, dataset, row) for rule, selection in selections.items()}
        for row in order_rows(any_rule, dataset=dataset)
    }
    known = [
        rule
        for rule in selections
        if any(not isinstance(each, Missing) for by_rule in numbers.values() for each in by_rule[rule].values())
    ]
    others = [rule for rule in known if rule != ORACLE]
    rows = []
    for row, by_rule in numbers.items():
        shown = [by_rule[rule] for rule in known] + [_subtract(by_rule[rule], by_rule[ORACLE]) for rule in others]
        rows.append(TableRow(row, tuple(average_trials(each, spread) for each in shown)))
    left_out = [COLUMNS[rule] for rule in selections if rule not in known]
    caption = (
        f"{any_rule.metric.capitalize()} (%) by selection rule: means over the test domains "
        f"{', '.join(any_rule.domains[dataset])}, then over trials; ± {SPREADS[spread]}. Gap: the rule minus the "
        "oracle, in percentage points, over the trials that have both. The oracle selects a hyper-parameter sample by "
        "the test domain, at the last step: it is no rule for practice, and a rule that selects the step may be better."
        + (f" No runs for {', '.join(left_out)}: run the sweep with --pairs." if left_out else "")
    )
    columns = (*(COLUMNS[rule] for rule in known), *(f"gap of {COLUMNS[rule]}" for rule in others))
    return Table(f"{dataset}: selection rules", caption, columns, tuple(rows), any_rule.labels, best=False)


def _subtract(numbers: Numbers, oracle: Numbers) -> Numbers:
    """Subtract the oracle's number of each trial; the reason where one of them is missing."""
    gaps: Numbers = {}
    for trial, number in numbers.items():
        best = oracle[trial]
        gaps[trial] = number if isinstance(number, Missing) else best if isinstance(best, Missing) else number - best
    return gaps


# Lists of images, such as DomainBed-OOP: `--image-lists`


def list_tables(selection: Selection, spread: Spread) -> list[Table]:
    """Make a table for each dataset and list: rows × test domains.

    Runs store these numbers for the weights that training-domain validation selects: for other rules there are no
    tables.
    """
    tables = []
    for name, datasets in _find_lists(selection).items():
        listed = replace(selection, cells={cell: _restrict(cell, each, name) for cell, each in selection.cells.items()})
        for dataset in sorted(datasets):
            table = dataset_table(listed, dataset, spread=spread)
            caption = f"{table.caption} Only images of the list {name} are counted."
            tables.append(replace(table, title=f"{dataset}: {name}", caption=caption))
    return tables


def _find_lists(selection: Selection) -> dict[str, set[str]]:
    """Find the datasets of which runs have numbers, by the name of the list."""
    found: dict[str, set[str]] = {}
    for cell, outcome in selection.cells.items():
        if selection.rule == "training_domain" and isinstance(outcome, Selected):
            start = name_part(cell.test_domain, "")
            for key in outcome.record.unseen.get(cell.row.model, {}):
                if key.startswith(start):
                    found.setdefault(key.removeprefix(start), set()).add(cell.dataset)
    return found


def _restrict(cell: Cell, outcome: Selected | Missing, name: str) -> Selected | Missing:
    """Replace the accuracy on the test domain by that on its images in a list."""
    if isinstance(outcome, Missing):
        return outcome
    metrics = outcome.record.unseen.get(cell.row.model, {}).get(name_part(cell.test_domain, name))
    return replace(outcome, accuracy=metrics.accuracy) if metrics else Missing(f"no image of the list {name}")


# Single sources


def single_source_tables(records: Sequence[RunRecord], rule: Rule, spread: Spread = "stderr") -> list[Table]:
    """Make a table for each dataset: a row for each method and source, a column for each target."""
    by_dataset: dict[str, dict[str, list[RunRecord]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        by_dataset[record.dataset][record.sources[0]].append(record)
    return [_list_sources(dataset, by_source, rule, spread) for dataset, by_source in sorted(by_dataset.items())]


def _list_sources(dataset: str, by_source: dict[str, list[RunRecord]], rule: Rule, spread: Spread) -> Table:
    domains = tuple(dict.fromkeys(name for some in by_source.values() for record in some for name in record.domains))
    columns = (*domains, AVERAGE)
    rows: dict[str, list[TableRow]] = defaultdict(list)  # by label: the sources of a method stand together
    for source in filter(by_source.__contains__, domains):
        selection = select(by_source[source], rule)
        table = dataset_table(selection, dataset, spread=spread)
        for row in table.rows:
            entries, label = dict(zip(table.columns, row.entries)), table.label(row)
            rows[label].append(
                TableRow(row.row, tuple(entries.get(c, SOURCE) for c in columns), f"{label}, {source} →")
            )
    average = f"Each row is trained on one domain, the source, and tested on the others. {AVERAGE}: mean over them."
    return Table(
        f"{dataset}: single source",
        write_caption(selection, spread, [dataset], average),
        columns,
        tuple(row for some in rows.values() for row in some),
        selection.labels,
        best=False,
        corner="Method, source →",
    )


# Grids: selection within every combination of settings


def grid_tables(
    grid: Grid, *, rule: Rule = "training_domain", spread: Spread = "stderr", published: bool = False
) -> list[Table]:
    """Make a table for each dataset and row that has the grid's settings.

    Its columns are the values of the last setting, its rows the combinations of the others, as in the paper's table of
    the sensitivity to α and λ₀. With `published` it has the paper's rows, too, whatever our dataset is.
    """
    held_out = find_test_domains(grid.records)  # a point of the grid may lack some
    selections = {point: select(grid.at(point), rule, held_out) for point in grid.points()}
    rows = dict.fromkeys(row for selection in selections.values() for row in selection.rows())
    tables = []
    for dataset in dict.fromkeys(record.dataset for record in grid.records):
        for row in sorted(rows, key=lambda row: row.model != "raw"):
            table = _tabulate_grid(grid, selections, dataset, row, spread)
            tables.append(_add_paper_rows(table, grid, dataset) if published and row == Row("fgmix") else table)
    return tables


def _tabulate_grid(
    grid: Grid, selections: Mapping[tuple[Any, ...], Selection], dataset: str, row: Row, spread: Spread
) -> Table:
    *leading, last = grid.values
    any_run = next(selection for selection in selections.values() if dataset in selection.domains)

    def enter(point: tuple[Any, ...]) -> Entry:
        selection = selections[point]
        known = dataset in selection.domains and row in selection.rows()
        return average_dataset(selection, dataset, row, spread) if known else Entry(note="not run")

    rows = tuple(
        TableRow(
            row, tuple(enter((*first, value)) for value in grid.values[last]), name=", ".join(map(format_value, first))
        )
        for first in product(*(grid.values[name] for name in leading))
    )
    labels = collect_labels(grid.records)
    return Table(
        f"{dataset}: {label_row(labels, row)} by {_join_symbols(' and ', grid.values)}",
        f"{overall_caption(any_run, spread)} Test domains: {', '.join(any_run.domains[dataset])}.",
        tuple(format_setting(last, value) for value in grid.values[last]),
        rows,
        labels,
        best=False,
        corner=_join_symbols(", ", leading) or "Method",
    )


def _add_paper_rows(table: Table, grid: Grid, dataset: str) -> Table:
    """Add the paper's row below each of ours; for another grid, name the paper's in the caption."""
    if tuple(grid.values) != PAPER_GRID:
        missing = (
            f"The paper has no numbers for this grid. Its grid is over {_join_symbols(' and ', PAPER_GRID)}: run it "
            "with fgmix sweep --preset paper-sensitivity."
        )
        return replace(table, caption=f"{table.caption} {missing}")
    theirs = sensitivity()
    source = PAPER if dataset == PAPER_DATASET else f"{PAPER}, {PAPER_DATASET}"
    rows: list[TableRow] = []
    for lam, row in zip(grid.values["lam"], table.rows):
        numbers = [theirs.get((PAPER_DATASET, lam, alpha)) for alpha in grid.values["alpha"]]
        rows += [row, replace(row, entries=tuple(map(Entry, numbers)), source=source)]
    caption = f"{table.caption} Rows marked (paper) are published numbers, without a spread."
    return replace(table, rows=tuple(rows), caption=caption)


def _join_symbols(sign: str, settings: Iterable[str]) -> str:
    return sign.join(SYMBOLS.get(name, name) for name in settings)
