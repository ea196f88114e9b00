"""Tables of runs that train on one domain: source → targets."""

from __future__ import annotations

from itertools import permutations

from fgmix.records.schema import RunRecord
from fgmix.results.report import tabulate
from fgmix.results.runs import Runs
from fgmix.results.single_source import single_source_tables, split_single_source
from results.made import Parts, run, sweep

NUMBERS = {pair: 10.0 * (place + 1) for place, pair in enumerate(permutations("abc", 2))}  # source and target


def trained_on(
    source: str, *, draw: int = 0, validation: float = 0.5, change: float = 0.0, trial: int = 0
) -> RunRecord:
    parts: Parts = {source: (None, validation)}
    for target in sorted({*"abc"} - {source}):
        accuracy = (NUMBERS[source, target] + change) / 100
        parts[target] = (accuracy, accuracy)
    return run(" ".join(name for name in parts if name != source), {20: parts}, draw=draw, trial=trial)


def test_rows_are_sources_and_columns_targets() -> None:
    worse = [trained_on(source, draw=1, validation=0.4, change=50) for source in "abc"]
    others = [trained_on(source, trial=1, change=2) for source in "abc"]
    records = [*map(trained_on, "abc"), *worse, *others]
    rest, single = split_single_source(records)
    assert (rest, len(single)) == ([], 9)
    (table,) = single_source_tables(single, "training_domain")
    assert table.columns == ("a", "b", "c", "Avg")
    assert [table.label(row) for row in table.rows] == ["ERM, a →", "ERM, b →", "ERM, c →"]
    shown = [
        [entry.value if entry.value is None else round(entry.value, 6) for entry in row.entries] for row in table.rows
    ]
    assert shown == [[None, 11, 21, 16], [31, None, 41, 36], [51, 61, None, 56]]  # validation selects, not accuracy
    assert table.rows[0].entries[0].shown == "source"
    assert [each.title for each in tabulate(Runs([], single_source=single))] == ["toy: single source"]


def test_pairs_of_leave_one_domain_out_and_a_single_study_stay_where_they_were() -> None:
    pairs = list(map(trained_on, "abc"))
    with_pairs = [*sweep({"erm": [[0.1, 0.2, 0.3]]}), *pairs]
    assert split_single_source(with_pairs) == (with_pairs, [])
    assert split_single_source(pairs[:1]) == (pairs[:1], []), "one source, one set of test domains: an ordinary table"
