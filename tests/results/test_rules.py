"""Selection rules side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from fgmix.cli import app
from fgmix.results.report import Choices, all_tables
from fgmix.results.rules import rule_tables
from fgmix.results.runs import Runs
from fgmix.results.selection import RULES, Rule, select
from fgmix.results.tables import overall_table
from report.folders import write
from results.made import random_sweep, sweep


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
