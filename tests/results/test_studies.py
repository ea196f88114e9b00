"""Tables that studies add: grids of settings, selection rules side by side, single sources."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from copying import replace
from fgmix.cli import app
from fgmix.records.schema import RunRecord
from fgmix.records.status import Plan, read_plans, write_plan
from fgmix.results.read import read_runs, split_grids, split_single_source
from fgmix.results.report import Choices, all_tables, tabulate
from fgmix.results.rounding import format_value
from fgmix.results.runs import Grid, Runs
from fgmix.results.selection import RULES, Rule, select
from fgmix.results.studies import grid_tables, rule_tables, single_source_tables
from fgmix.results.tables import overall_table
from report.folders import write
from results.folders import write as write_runs
from results.made import GRID, Parts, finished, grid_records, random_sweep, run, sweep


def test_a_grid_is_a_table_of_its_settings() -> None:
    (table,) = grid_tables(Grid(GRID, tuple(grid_records(lambda lam, alpha: 0.1 * lam + alpha))))
    assert table.title == "toy: FGMix by λ₀ and α"
    assert (table.corner, table.columns) == ("λ₀", ("α = 0.1", "α = 0.3"))
    assert [table.label(row) for row in table.rows] == ["1", "3"]
    shown = [[entry.shown for entry in row.entries] for row in table.rows]
    # mean of two trials that differ by 2 points: std 1, standard error 1/√2
    assert shown == [["21.0 ± 0.7", "41.0 ± 0.7"], ["41.0 ± 0.7", "61.0 ± 0.7"]]
    assert "2 trials; ± standard error" in table.caption
    assert "Avg" not in table.caption  # there is no such column


def test_averaged_models_have_a_table_of_their_own() -> None:
    parts = {20: {"a": (0.4, 0.4), "b": (None, 0.5)}}
    averaged = {20: {"a": (0.7, 0.7), "b": (None, 0.5)}}
    record = run("a", parts, swa=averaged, algorithm="fgmix", settings={"lam": 1.0})
    other = run("b", {20: {"b": (0.4, 0.4), "a": (None, 0.5)}}, swa={20: {"b": (0.7, 0.7), "a": (None, 0.5)}})
    other = replace(other, spec=replace(other.spec, algorithm="fgmix", settings={"lam": 1.0}))
    tables = grid_tables(Grid({"lam": (1.0,)}, (record, other)))
    assert [table.title for table in tables] == ["toy: FGMix by λ₀", "toy: FGMix + SWA by λ₀"]
    assert [table.rows[0].entries[0].shown for table in tables] == ["40.0", "70.0"]
    assert (
        tables[0].label(tables[0].rows[0]) == "FGMix"
    )  # one setting: its values are the columns, the method is the row


def test_domains_that_a_grid_holds_out_nowhere_are_not_missed_but_others_are() -> None:
    a_only = [record for record in grid_records(lambda *_: 0.5) if record.spec.test_domains == ("a",)]
    (table,) = grid_tables(Grid(GRID, tuple(a_only)))
    assert table.rows[0].entries[0].shown == "51.0 ± 0.7"
    assert table.caption.endswith("Test domains: a.")
    but_one = [record for record in grid_records(lambda *_: 0.5) if str(record.folder) != "out/1.0 0.1 b 1"]
    (table,) = grid_tables(Grid(GRID, tuple(but_one)))
    assert table.rows[0].entries[0].note == "1 of 2 trials; trial 1: no finished run holds out b"
    assert table.rows[0].entries[1].note == ""


def test_a_point_without_runs_says_so() -> None:
    records = [record for record in grid_records(lambda *_: 0.5) if record.spec.settings["lam"] == 3.0]
    (table,) = grid_tables(Grid(GRID, tuple(records)))
    assert [(entry.shown, entry.note) for entry in table.rows[0].entries] == [("–", "not run")] * 2
    assert "2 trials" in table.caption


@pytest.mark.parametrize(("dataset", "label"), [("TerraIncognita", "3 (paper)"), ("toy", "3 (paper, TerraIncognita)")])
def test_the_papers_grid_stands_beside_on_request(dataset: str, label: str) -> None:
    (table,) = grid_tables(Grid(GRID, tuple(grid_records(lambda *_: 0.5, dataset=dataset))), published=True)
    theirs = {table.label(row): [entry.shown for entry in row.entries] for row in table.rows}
    assert theirs[label] == ["49.2", "49.0"]  # the paper's λ₀ = 3 at α = 0.1 and 0.3
    assert len(table.rows) == 4


def test_another_grid_than_the_papers_says_which_preset_runs_it() -> None:
    records = grid_records(lambda *_: 0.5)
    (table,) = grid_tables(Grid({"alpha": (0.1, 0.3)}, tuple(records[:8])), published=True)
    assert len(table.rows) == 1
    assert "The paper has no numbers for this grid. Its grid is over λ₀ and α" in table.caption
    assert "--preset paper-sensitivity" in table.caption


def test_a_folder_with_a_grid_and_a_sweep_reports_both(tmp_path: Path) -> None:
    """What a sweep without a grid wants too is in both; what the grid alone wants is in the grid's table only."""
    records = grid_records(lambda lam, _: 0.1 * lam)
    names = [record.folder.name for record in records if record.folder]
    shared = [name for name in names if name.startswith("3.0 0.1")]
    extra = replace(finished("a", 0.9, domains="a b"), folder=Path("out/erm"))
    plans = [Plan(tuple(names), GRID), Plan((*shared, "erm"), {})]
    plain, (grid,) = split_grids([*records, extra], {Path("out"): plans})
    assert [record.folder.name for record in plain if record.folder] == [*shared, "erm"]
    assert len(grid.records) == 16
    text = tabulate(Runs(plain, [grid])).to_text()
    assert text.index("### toy\n") < text.index("### toy: FGMix by λ₀ and α")
    assert "keep one of them" not in text

    write_plan(tmp_path, Plan(tuple(names[:2]), GRID), {})
    write_plan(tmp_path, Plan(tuple(names[2:]), GRID), {})
    _, grids = split_grids(records, {Path("out"): read_plans(tmp_path)})
    assert len(grids) == 1  # two sweeps over one grid
    assert len(grids[0].records) == 16


def test_a_method_without_the_settings_is_no_part_of_the_grid() -> None:
    """ERM beside a grid of FGMix: its runs are the same at every point, hence reported once, as themselves."""
    records = grid_records(lambda lam, _: 0.1 * lam)
    erm = [replace(finished(t, 0.5, domains="a b"), folder=Path("out", f"erm {t}")) for t in "ab"]
    names = [record.folder.name for record in [*records, *erm] if record.folder]
    plain, (grid,) = split_grids([*records, *erm], {Path("out"): [Plan(tuple(names), GRID)]})
    assert plain == erm
    assert "| ERM | 50.0 | 50.0 | 50.0 |" in tabulate(Runs(plain, [grid])).to_text()
    groups = Runs(plain, [grid]).groups()
    assert [label for label, _ in groups] == [
        "",
        *(f"λ₀ = {lam}, α = {alpha}" for lam in (1, 3) for alpha in (0.1, 0.3)),
    ]
    assert sum(len(found) for _, found in groups) == len(records) + len(erm)  # each run once


def test_a_method_with_some_of_the_settings_has_groups_of_these() -> None:
    records = [finished("a", 0.5, algorithm="coral", settings={"lam": lam}) for lam in (1.0, 3.0)]
    assert Grid(GRID, tuple(records)).groups() == [("λ₀ = 1", records[:1]), ("λ₀ = 3", records[1:])]


def test_a_grid_below_the_folder_is_a_grid(tmp_path: Path) -> None:
    """One grid in two folders, and a plain run elsewhere that is called like one of its runs."""
    records = grid_records(lambda lam, _: 0.1 * lam)
    for place, part in (("first", records[:8]), ("second", records[8:])):
        write_runs(tmp_path / place, part)
        write_plan(tmp_path / place, Plan(tuple(f"run{i}" for i in range(8)), GRID), {})
    write_runs(tmp_path / "third", [finished("a", 0.9, domains="a b")])
    write_plan(tmp_path / "third", Plan(("run0",), {}), {})
    found = read_runs(tmp_path)
    assert [record.spec.algorithm for record in found.records] == ["erm"]
    (grid,) = found.grids
    assert len(grid.records) == 16


def test_many_names_are_short_and_told_apart() -> None:
    """Rows of runs with other class names have them in their labels, of 345 classes in DomainNet."""
    names = tuple(f"class {number}" for number in range(345))
    assert format_value(names[:2]) == "class 0, class 1"
    labels = {format_value(names), format_value((*names[:-1], "zebra"))}
    assert len(labels) == 2
    assert all(len(label) < 45 for label in labels)


def test_rules_and_gaps_are_those_of_each_rule_alone() -> None:
    records = random_sweep(datasets=1, algorithms=2, trials=3, draws=2, domains=3, pairs=True)
    (table,) = rule_tables(Runs(records))
    order: list[Rule] = ["training_domain", "last_evaluations", "leave_one_out", "oracle"]
    assert {*order} == {*RULES}
    alone = {rule: overall_table(select(records, rule)).rows for rule in order}
    for place, row in enumerate(table.rows):
        values = [entry.value for entry in row.entries]
        expected = [alone[rule][place].entries[0].value for rule in order]
        assert values[:4] == pytest.approx(expected)
        assert values[4:] == pytest.approx([each - expected[3] for each in expected[:3]])  # type: ignore[operator]
        assert [entry.spread for entry in row.entries[:4]] == [alone[rule][place].entries[0].spread for rule in order]


def test_a_rule_without_runs_is_left_out_and_named() -> None:
    (table,) = rule_tables(Runs(sweep({"erm": [[0.5, 0.6, 0.7]]})))
    assert len(table.columns) == 5
    assert "No runs for leave-one-domain-out: run the sweep with --pairs." in table.caption


def test_all_rules_are_an_option_of_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = sweep({"erm": [[0.5, 0.6, 0.7]]})
    tables = all_tables(Runs(records), select(records), Choices(every_rule=True))
    assert [table.title for table in tables] == ["toy", "toy: selection rules"]
    folder = str(write(tmp_path / "runs", records))
    app(["report", folder, "--selection", "all", "--format", "latex"], standalone_mode=False)
    assert r"\label{tab:toy-selection-rules}" in capsys.readouterr().out


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
