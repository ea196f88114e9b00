"""The first lines of the page: what was found, and what was run."""

from __future__ import annotations

from fgmix.records.schema import RunRecord
from fgmix.report.summary import write_headlines
from fgmix.results.report import Choices
from fgmix.results.selection import select
from report import folders
from results.made import finished, sweep


def found(records: list[RunRecord], test_domains: dict[str, str] | None = None) -> tuple[str, str]:
    selection = select(records, test_domains=test_domains or {})
    (headline,) = write_headlines(selection, records)
    return headline.result, headline.run


def test_the_best_method_and_its_difference_from_erm() -> None:
    sentence, run = found(folders.records())
    assert sentence == (
        "FGMix reaches 64.5 % on average, the highest of 3 results: +3.0 points relative to ERM (95 % interval for "
        "these test domains: +3.0 to +3.0, for a new test domain: +3.0 to +3.0), a significant difference (p < 0.001, "
        "Wilcoxon, Holm)."
    )
    assert run == (
        "3 of 3 domains held out · mlp, random initialisation · 20 steps · protocol clean · 4 trials · "
        "1 hyper-parameter sample · 36 runs"
    )


def test_a_difference_that_is_not_significant_is_called_so() -> None:
    pairs = [[0.5, 0.6, 0.7], [0.5, 0.6, 0.7], [0.5, 0.6, 0.7]]
    shifted = [[0.51, 0.59, 0.71], [0.49, 0.62, 0.69], [0.52, 0.58, 0.71]]
    sentence, _ = found(sweep({"erm": pairs, "mixup": shifted}))
    assert sentence.endswith(
        ", which cannot be decided with 9 pairs of trial and test domain: 1.6 points are detectable."
    )


def test_one_trial_is_too_few_to_test() -> None:
    sentence, run = found(sweep({"erm": [[0.5, 0.5, 0.5]], "mixup": [[0.6, 0.7, 0.8]]}))
    assert "+20.0 points relative to ERM (95 % interval for a new test domain: -4.8 to +44.8)" in sentence
    assert "cannot be decided with 3 pairs of trial and test domain" in sentence
    assert "1 trial ·" in run


def test_where_erm_is_the_best_the_next_is_named() -> None:
    sentence, _ = found(sweep({"erm": [[0.7, 0.7]] * 2, "mixup": [[0.5, 0.6]] * 2}, domains="a b"))
    assert sentence.startswith("ERM reaches 70.0 % on average, the highest of 2 results. Next best: Mixup")
    assert "-15.0 points relative to ERM" in sentence


def test_another_baseline_and_a_margin() -> None:
    records = sweep({"erm": [[0.5, 0.6], [0.51, 0.6]], "coral": [[0.502, 0.6], [0.51, 0.602]]}, domains="a b")
    (headline,) = write_headlines(select(records), records, Choices(baseline="coral", margin=1))
    assert "-0.1 points relative to CORAL" in headline.result
    assert headline.result.endswith("equivalent within ±1.")


def test_without_erm_and_with_one_method_and_without_a_result() -> None:
    assert (
        "There is no ERM to compare it with"
        in found(sweep({"mixup": [[0.5, 0.5]], "coral": [[0.6, 0.6]]}, domains="a b"))[0]
    )
    assert found(sweep({"mixup": [[0.5, 0.5]]}, domains="a b"))[0].endswith("on average. It is the only method.")


def test_erm_alone_has_nothing_to_be_compared_with() -> None:
    averaged = {20: {"a": (0.6, 0.6), "b": (0.6, 0.6)}}
    both = [finished(test, 0.5, domains="a b", swa=averaged) for test in "ab"]
    assert found(both)[0].endswith("the highest of 2 results. There is no other method to compare it with.")


def test_a_single_run_has_its_accuracy_in_the_headline() -> None:
    assert found([finished("a", 0.5)])[0] == "ERM reaches 50.0 % on a. It is the only method."
    assert found([finished("a", 0.5)], {"toy": "abc"})[0] == "no method has a result for every test domain yet."


def test_different_networks_are_listed_and_many_are_counted() -> None:
    two = [finished("a", 0.5, backbone=name, algorithm=name) for name in ("mlp", "small_cnn")]
    assert "mlp, random initialisation or small_cnn, random initialisation" in found(two)[1]
    many = [finished("a", 0.5, steps=steps, algorithm=f"m{steps}") for steps in (10, 20, 30, 40)]
    assert "4 numbers of steps" in found(many)[1]
