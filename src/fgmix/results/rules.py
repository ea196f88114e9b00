"""Selection rules side by side, and what each loses against the oracle: `fgmix report --selection all`. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from fgmix.records.rows import Row
from fgmix.results.runs import Runs
from fgmix.results.selection import LAST, Missing, Rule, Selection, select
from fgmix.results.tables import SPREADS, Entry, Spread, Table, TableRow, average_domains, average_trials, order_rows

ORACLE: Rule = "oracle"
COLUMNS: dict[Rule, str] = {
    "training_domain": "training-domain validation",
    "last_evaluations": f"last {LAST} evaluations",
    "leave_one_out": "leave-one-domain-out",
    "oracle": "oracle",
}
Numbers = dict[int, float | Missing]  # mean over the test domains, by trial


def rule_tables(runs: Runs, spread: Spread = "stderr") -> list[Table]:
    """Make a table for each dataset: rows × selection rules, and the difference of each rule from the oracle."""
    selections = {rule: select(runs, rule) for rule in get_args(Rule)}
    return [_make_table(selections, dataset, spread) for dataset in selections[ORACLE].domains]


def _make_table(selections: Mapping[Rule, Selection], dataset: str, spread: Spread) -> Table:
    any_rule = selections[ORACLE]
    numbers = {
        row: {rule: _average(selection, dataset, row) for rule, selection in selections.items()}
        for row in order_rows(any_rule, dataset=dataset)
    }
    known = [rule for rule in selections if any(_has_number(by_rule[rule]) for by_rule in numbers.values())]
    others = [rule for rule in known if rule != ORACLE]
    rows = tuple(
        TableRow(
            row,
            (
                *(average_trials(by_rule[rule], spread) for rule in known),
                *(_compare(by_rule[rule], by_rule[ORACLE], spread) for rule in others),
            ),
        )
        for row, by_rule in numbers.items()
    )
    left_out = [COLUMNS[rule] for rule in selections if rule not in known]
    caption = (
        f"{any_rule.metric.capitalize()} (%) by selection rule: means over the test domains "
        f"{', '.join(any_rule.domains[dataset])}, then over trials; ± {SPREADS[spread]}. Gap: the rule minus the "
        "oracle, in percentage points, over the trials that have both. The oracle selects a hyper-parameter sample by "
        "the test domain, at the last step: it is no rule for practice, and a rule that selects the step may be better."
        + (f" No runs for {', '.join(left_out)}: run the sweep with --pairs." if left_out else "")
    )
    columns = (*(COLUMNS[rule] for rule in known), *(f"gap of {COLUMNS[rule]}" for rule in others))
    return Table(f"{dataset}: selection rules", caption, columns, rows, any_rule.labels, best=False)


def _average(selection: Selection, dataset: str, row: Row) -> Numbers:
    trials = selection.trials(dataset, row.origin)
    return {trial: average_domains(selection, dataset, row, trial) for trial in trials}


def _has_number(numbers: Numbers) -> bool:
    return any(not isinstance(each, Missing) for each in numbers.values())


def _compare(numbers: Numbers, oracle: Numbers, spread: Spread) -> Entry:
    """Average the difference from the oracle over the trials that have both."""
    both: dict[int, float | Missing] = {}
    for trial, number in numbers.items():
        best = oracle[trial]
        missing = next((each for each in (number, best) if isinstance(each, Missing)), None)
        both[trial] = missing or number - best  # type: ignore[operator]  # neither is missing
    return average_trials(both, spread)
