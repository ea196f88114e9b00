"""The evaluations of a run in one array: what goes in comes out, and broken ones are named."""

from __future__ import annotations

import math

import pytest

from copying import replace
from fgmix.errors import UserError
from fgmix.records.evaluations import Evaluation, Evaluations

FIRST = Evaluation(
    step=5,
    accuracy={"raw": {"b": {"holdout": 0.5}, "a": {"train": 0.25, "holdout": 1.0}}},
    loss={"raw": {"b": {"holdout": 2.0}, "a": {"train": 0.5, "holdout": 0.0}}},
    metrics={"loss": 1.5, "gap": math.inf},
)
# A second model, another metric, and a loss that the first lacks.
SECOND = Evaluation(
    step=9,
    accuracy={model: {"b": {"holdout": 0.75}, "a": {"train": 0.5, "holdout": 0.125}} for model in ("raw", "swa")},
    loss={},
    metrics={"penalty": 3.0},
)


def test_they_are_what_was_put_in() -> None:
    both = Evaluations([FIRST, SECOND])
    assert list(both) == [FIRST, SECOND]
    assert (both[0], both[-1], both[:1]) == (FIRST, SECOND, (FIRST,))
    assert (len(both), both.steps, both.models) == (2, (5, 9), ("raw", "swa"))
    assert both == Evaluations(both)
    assert not Evaluations().models


def test_scores_are_those_of_single_evaluations() -> None:
    headline = replace(FIRST, headline={"raw": {"b": {"holdout": 0.9}, "a": {"train": 0.8, "holdout": 0.7}}})
    both = Evaluations([headline, SECOND])
    for place, evaluation in enumerate(both):
        for domain, split in (("b", "holdout"), ("a", "train"), ("a", "holdout")):
            assert both.score(place, "raw", domain, split) == evaluation.score("raw", domain, split)
        assert both.validations(("a", "b"), "raw")[place] == evaluation.validation(("a", "b"))
    assert both.validations(("b",), "swa") == {1: 0.75}


def test_layouts_are_shared_between_runs() -> None:
    one, other = Evaluations([FIRST]), Evaluations([replace(FIRST, step=7)])
    assert one._layouts[0] is other._layouts[0]


@pytest.mark.parametrize(
    ("evaluation", "named"),
    [
        (replace(FIRST, accuracy={"raw": {"a": {"train": 0.5, "holdout": 0.5}}}), "b"),
        (replace(FIRST, accuracy={"raw": {"b": {"holdout": 0.5}, "a": {"holdout": 0.5}}}), "train"),
        (replace(FIRST, headline={"raw": {"b": {"holdout": 0.5}}}), "headline"),
        (replace(FIRST, loss={"raw": {"c": {"holdout": 0.5}}}), "c"),
        (replace(FIRST, loss={"raw": {"b": {"holdout": math.nan}}}), "loss"),
        (replace(FIRST, loss={"raw": {"b": {"holdout": -1.0}}}), "loss"),
    ],
)
def test_what_no_run_measures_is_named(evaluation: Evaluation, named: str) -> None:
    Evaluations([FIRST]).check(("a", "b"), ("a",))
    with pytest.raises(UserError, match=named):
        Evaluations([FIRST, evaluation]).check(("a", "b"), ("a",))
