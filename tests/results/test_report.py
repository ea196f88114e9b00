"""The tables of a report."""

from __future__ import annotations

import pytest

from copying import replace
from fgmix.results.report import tabulate
from fgmix.results.runs import Runs
from results.made import finished


def test_marks_are_of_the_dataset_whose_table_they_stand_in() -> None:
    """m1 beats ERM by far on d1 and by turns on d2."""
    records = [
        finished(test, accuracy + 0.01 * trial, algorithm=algorithm, dataset=dataset, trial=trial)
        for dataset, gains in (("d1", (0.3, 0.3, 0.3)), ("d2", (0.01, -0.01, 0.0)))
        for algorithm in ("erm", "m1")
        for test, gain in zip("abc", gains)
        for accuracy in [0.5 + (gain if algorithm == "m1" else 0)]
        for trial in range(3)
    ]
    text = tabulate(Runs(records)).to_text()
    first, second, overall, differences = text.split("### ")[1:5]
    assert "| m1 |" in first
    assert "| m1 † |" in second
    assert overall.startswith("Overall")
    assert differences.startswith("Differences from ERM")


def test_without_a_number_of_erm_there_is_nothing_to_compare_with() -> None:
    only = tabulate(Runs([finished("a", 0.5, algorithm="m1")])).to_text()
    assert "Differences" not in only
    diverged = replace(finished("a", 0.5), evaluations=(), status="diverged", diverged_at=3)
    assert "Differences" not in tabulate(Runs([finished("a", 0.5, algorithm="m1"), diverged])).to_text()


@pytest.mark.parametrize(
    ("format", "sign"), [("md", "| 60.0 |"), ("latex", r"\toprule"), ("csv", "toy,erm,raw,,a,60.0")]
)
def test_formats(format: str, sign: str) -> None:
    assert sign in tabulate(Runs([finished("a", 0.6)])).to_text(format)


METHODS = (("erm", 0.5), ("m1", 0.6), ("m2", 0.4))


@pytest.mark.parametrize("format", ["md", "latex", "csv"])
def test_ranks_stand_in_every_format(format: str) -> None:
    records = [finished(test, accuracy, algorithm=algorithm) for algorithm, accuracy in METHODS for test in "abc"]
    text = tabulate(Runs(records)).to_text(format)
    ranks = text[text.index("Ranks") :]
    assert ranks.index("m1") < ranks.lower().index("erm") < ranks.index("m2")  # the best first
    assert all(rank in ranks for rank in ("1.00", "2.00", "3.00"))


@pytest.mark.parametrize("format", ["md", "latex", "csv"])
def test_where_nothing_can_be_ranked_the_report_says_why(format: str) -> None:
    apart = [finished(test, accuracy, algorithm=algorithm) for test, (algorithm, accuracy) in zip("abc", METHODS)]
    assert "Found 3 methods with 0 in common" in tabulate(Runs(apart)).to_text(format)
    assert "Ranks" not in tabulate(Runs(apart[:2])).to_text(format)  # two methods have their difference
    assert "Ranks" not in tabulate(Runs(apart), rule="leave_one_out").to_text(format)  # no numbers at all
