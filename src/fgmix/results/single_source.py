"""Runs that train on one source domain and are tested on all others, and their table: source → targets. No torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from fgmix.records.schema import RunRecord
from fgmix.results.published import AVERAGE
from fgmix.results.selection import Rule, select
from fgmix.results.tables import Entry, Spread, Table, TableRow, dataset_table, write_caption

SOURCE = Entry(text="source")  # entry of the domain that a row is trained on


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


def single_source_tables(records: Sequence[RunRecord], rule: Rule, spread: Spread = "stderr") -> list[Table]:
    """Make a table for each dataset: a row for each method and source, a column for each target."""
    by_dataset: dict[str, dict[str, list[RunRecord]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        by_dataset[record.dataset][record.sources[0]].append(record)
    return [_make_table(dataset, by_source, rule, spread) for dataset, by_source in sorted(by_dataset.items())]


def _make_table(dataset: str, by_source: dict[str, list[RunRecord]], rule: Rule, spread: Spread) -> Table:
    every = [record for some in by_source.values() for record in some]
    domains = tuple(dict.fromkeys(name for record in every for name in record.domains))
    columns = (*domains, AVERAGE)
    rows: dict[str, list[TableRow]] = defaultdict(list)  # by label: the sources of a method stand together
    for source in filter(by_source.__contains__, domains):
        selection = select(by_source[source], rule)
        table = dataset_table(selection, dataset, spread=spread)
        for row in table.rows:
            entries = dict(zip(table.columns, row.entries))
            name = f"{table.label(row)}, {source} →"
            rows[table.label(row)].append(TableRow(row.row, tuple(entries.get(c, SOURCE) for c in columns), name))
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
